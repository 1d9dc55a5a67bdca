// Put before the site's own search worker: what is titled as the query comes first, then the worker's order.
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

  const QUERY = 2;
  const RESULT = 3;
  let query = [];
  const send = self.postMessage.bind(self);
  self.postMessage = (message) =>
    send(message.type === RESULT ? { ...message, data: { ...message.data, items: ordered(message.data.items, query) } } : message);
  self.addEventListener("message", ({ data }) => {
    if (data.type === QUERY) query = words(data.data);
  });
}
