// Put before the site's own search worker: what is titled as the query comes first, then the worker's order. A query
// that has no answer is asked again as the nearest title.
{
  const SILENT = new Set("a an and for how i in is its my of on own the to use what with".split(" "));
  const worth = (likeness) => (likeness < 0.6 ? 0 : likeness);

  // Words of a text in small letters, so that LayerNorm, layer-norm and "layer normalization" are the same two.
  const words = (text) =>
    text
      .replace(/<[^>]*>/g, "")
      .replace(/([a-z0-9])(?=[A-Z][a-z])/g, "$1 ")
      .toLowerCase()
      .replace(/normali[sz]ations?|normali[sz]ed|norms\b/g, "norm")
      .replace(/norm(?=\d|\b)/g, " norm ")
      .split(/[^\p{L}\p{N}]+/u)
      .filter((word) => word && !SILENT.has(word))
      .map((word) => (word.length > 4 ? word.replace(/(?:ing|es|s)$/, "") : word));

  // 1 where two lists have the same words, 0 where they share none.
  const likeness = (query, title) => {
    if (query.join("") === title.join("")) return 1;
    const shared = new Set(query.filter((word) => title.includes(word))).size;
    return (2 * shared) / (query.length + title.length);
  };

  // The page comes last of its item where the worker matched a section of it only.
  const fit = (query, item) => {
    const page = item.find(({ location }) => !location.includes("#")) ?? item[0];
    return Math.max(
      ...[page.title, ...(page.tags ?? [])].map((title) => likeness(query, words(title))),
      ...item.filter((part) => part !== page).map((section) => 0.95 * likeness(query, words(section.title))),
    );
  };

  const ordered = (items, query) =>
    items
      .map((item) => [worth(fit(query, item)), item[0].score, item])
      .sort((a, b) => b[0] - a[0] || b[1] - a[1])
      .map(([, , item]) => item);

  // How many letters are wrong, left out, too many, or exchanged with the next; of more than `most` only that.
  const distance = (a, b, most) => {
    if (Math.abs(a.length - b.length) > most) return most + 1;
    let [before, last] = [[], [...b, 0].map((_, j) => j)];
    for (let i = 1; i <= a.length; i++) {
      const row = [i];
      for (let j = 1; j <= b.length; j++) {
        row[j] = Math.min(row[j - 1] + 1, last[j] + 1, last[j - 1] + (a[i - 1] !== b[j - 1]));
        if (a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) row[j] = Math.min(row[j], before[j - 2] + 1);
      }
      [before, last] = [last, row];
    }
    return last[b.length];
  };

  // The title or other name of a page that a query misspells: one letter in four may be wrong.
  const nearest = (query, titles) => {
    const typed = query.join("");
    let [best, least] = [undefined, Math.floor(typed.length / 4) + 1];
    for (const title of titles) {
      const apart = distance(typed, words(title).join(""), least - 1);
      if (apart < least) [best, least] = [title, apart];
    }
    return best;
  };

  const [SETUP, QUERY, RESULT] = [0, 2, 3];
  let [query, titles, again] = [[], [], false];
  const send = self.postMessage.bind(self);
  self.postMessage = (message) => {
    if (message.type !== RESULT) return send(message);
    const { items } = message.data;
    const title = items.length || again ? undefined : nearest(query, titles);
    if (title === undefined) return send({ ...message, data: { ...message.data, items: ordered(items, query) } });
    self.dispatchEvent(new MessageEvent("message", { data: { type: QUERY, data: title, again: true } }));
  };
  self.addEventListener("message", ({ data }) => {
    if (data.type === SETUP) {
      const pages = data.data.docs.filter(({ location }) => !location.includes("#"));
      titles = pages.flatMap((page) => [page.title, ...(page.tags ?? [])]);
    }
    if (data.type === QUERY) [query, again] = [words(data.data), data.again === true];
  });
}
