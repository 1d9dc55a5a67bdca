// What a reader would frown at on the page that is open: a list of sentences, evaluated by tests/screens.
(() => {
  const problems = new Set();
  const where = (element) => {
    const words = (element.getAttribute("aria-label") ?? element.textContent ?? "").trim().replace(/\s+/g, " ");
    const kind = element.getAttribute("class") ?? "";
    return `<${element.tagName.toLowerCase()}${kind ? ` class="${kind}"` : ""}> ${words.slice(0, 50)}`;
  };
  const flagged = new Set(); // a kind of element is named once
  const flag = (problem, element) => {
    const kind = `${problem} ${element.tagName} ${element.getAttribute("class")}`;
    if (!flagged.has(kind)) problems.add(`${problem}: ${where(element)}`);
    flagged.add(kind);
  };
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const seen = (element) => {
    const style = getComputedStyle(element);
    return element.getClientRects().length > 0 && style.visibility === "visible" && !element.closest("[hidden]");
  };

  // Nothing is wider than the window, but code, equations and tables that scroll by themselves.
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth)
    for (const element of all("body *").filter(seen))
      if (element.getBoundingClientRect().right > root.clientWidth + 1 && !element.closest("svg svg, svg *")) {
        flag(`the page is ${root.scrollWidth} wide in a window of ${root.clientWidth}`, element);
        break;
      }
  const phone = root.clientWidth < 600;
  for (const element of all(".md-content *").filter(seen)) {
    const style = getComputedStyle(element);
    const hidden = element.scrollWidth - element.clientWidth;
    if (hidden <= 1 || element.clientWidth === 0 || element.closest("svg")) continue;
    if (style.overflowX === "hidden" && style.textOverflow !== "ellipsis") flag(`${hidden} pixels are cut off`, element);
    if (["auto", "scroll"].includes(style.overflowX) && element.matches("figure, .methods") && !phone)
      flag(`what should fit scrolls ${hidden} pixels sideways`, element);
    if (element.matches(".sheet .eq")) flag(`an equation of a sheet scrolls ${hidden} pixels sideways`, element);
  }

  // Pictures are there, have words for who does not see them, and words that can be read in them.
  for (const image of all("img").filter(seen)) {
    if (image.alt === "" && image.getAttribute("role") !== "presentation") flag("a picture without words", image);
    if (image.complete && image.naturalWidth === 0) flag("a picture that does not load", image);
  }
  for (const use of all("use")) if (!document.querySelector(use.getAttribute("href"))) flag("a drawing that is missing", use);
  for (const drawing of all("svg.pic").filter((svg) => seen(svg) && !svg.hasAttribute("aria-hidden"))) {
    const box = drawing.getBoundingClientRect();
    if (box.width < 4 || box.height < 4) flag("an empty picture", drawing);
    if (!drawing.querySelector("path, rect, circle, text, use")) flag("an empty picture", drawing);
    if (!(drawing.getAttribute("aria-label") ?? "").trim()) flag("a picture without words", drawing);
    const texts = all("text", drawing).filter((text) => !text.hasAttribute("transform"));
    const boxes = texts.map((text) => text.getBoundingClientRect());
    const scale = drawing.viewBox.baseVal ? box.width / drawing.viewBox.baseVal.width : 1;
    if (texts.some((text) => parseFloat(getComputedStyle(text).fontSize) * scale < 8.5))
      flag(`words of ${(12 * scale).toFixed(1)} pixels in a picture`, drawing);
    boxes.forEach((one, at) => {
      if (one.left < box.left - 2 || one.right > box.right + 2) flag("words that leave their picture", texts[at]);
      for (let next = at + 1; next < boxes.length; next++) {
        const other = boxes[next];
        const across = Math.min(one.right, other.right) - Math.max(one.left, other.left);
        const down = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
        if (across > 1 && down > 4) flag(`words over others (${texts[next].textContent})`, texts[at]);
      }
    });
  }

  // Equations are set in a font of mathematics, without which roots and brackets come apart.
  for (const equation of all("math").filter(seen))
    if (!/^"?math/.test(getComputedStyle(equation).fontFamily)) flag("an equation in a font of words", equation);
  if (document.querySelector(".eq math") && ![...document.fonts].some((font) => font.status === "loaded"))
    problems.add("the font of the equations is not loaded");

  // What can be used has a name.
  for (const control of all("a[href], button, input, select, textarea").filter(seen)) {
    const name = [control.textContent, control.getAttribute("aria-label"), control.title, control.placeholder, control.alt,
      ...all("img, svg", control).flatMap((inner) => [inner.getAttribute("alt"), inner.getAttribute("aria-label")]),
      ...[...(control.labels ?? [])].map((label) => label.textContent)];
    if (!name.some((text) => (text ?? "").trim())) flag("a control without a name", control);
  }

  // Words stand out from what is behind them: 4.5 to 1, large ones 3 to 1.
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    const parts = colour.match(/^rgba?\(([^)]*)\)$/)?.[1].split(/[\s,/]+/).map(Number);
    if (parts) return [...parts.slice(0, 3), parts[3] ?? 1];
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = ([r, g, b, a], [R, G, B]) => [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a)];
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      const colour = rgba(getComputedStyle(at).backgroundColor);
      if (colour[3] > 0) layers.push(colour);
      if (colour[3] === 1) break;
    }
    return layers.reduceRight((below, layer) => over(layer, below), [255, 255, 255]);
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((part) => part / 255).map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const spoken = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !seen(element) || element.closest("script, style, title, option, math")) continue;
    if (spoken.has(element)) continue;
    spoken.add(element);
    const box = element.getBoundingClientRect();
    if (box.width < 2 || box.height < 2) continue;
    let opacity = 1;
    for (let at = element; at; at = at.parentElement) opacity *= Number(getComputedStyle(at).opacity);
    if (opacity < 0.05) continue; // shown when it is rested on
    const style = getComputedStyle(element);
    const [r, g, b, a] = rgba(element.closest("svg") ? style.fill : style.color);
    const ground = behind(element);
    const found = contrast(over([r, g, b, a * opacity], ground), ground);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if (found < (large ? 3 : 4.5)) flag(`a contrast of ${found.toFixed(2)}`, element);
  }
  // The table of all methods is narrowed by words, names, rooms, tasks and ticks, and sorted by its heads.
  const table = document.querySelector("#all");
  if (table) {
    const rows = () => [...table.tBodies[0].rows];
    const names = () => rows().filter((row) => !row.hidden).map((row) => row.querySelector("a").textContent);
    const set = (control, value) => {
      control[control.type === "checkbox" ? "checked" : "value"] = value;
      control.dispatchEvent(new Event(control.type === "checkbox" ? "change" : "input"));
    };
    const at = (id) => document.getElementById(id);
    const claim = (what, holds) => holds || problems.add(`the table: ${what}: ${names().slice(0, 5).join(", ")}`);
    const whole = names().length;
    set(at("filter"), "layernorm|rmsnorm");
    claim("two names show other rows", names().sort().join() === "layernorm,rmsnorm");
    set(at("filter"), "GemmaRMSNorm");
    claim("another library's class shows other rows", names().includes("rmsnorm") && names().length < 5);
    set(at("filter"), "residual, 2020");
    const years = rows().filter((row) => !row.hidden).map((row) => row.cells[3].textContent);
    claim("words between commas show none, or other years", years.length > 0 && years.length < 40 && years.every((year) => year === "2020"));
    set(at("filter"), "no such word");
    claim("a word that is nowhere shows rows", names().length === 0 && at("count").textContent === `0 of ${whole}`);
    set(at("filter"), "");
    for (const id of ["room", "task"])
      for (const option of [...at(id).options].filter((one) => one.value)) {
        set(at(id), option.value);
        claim(`${id} ${option.value} shows none or all`, names().length > 0 && names().length < whole);
        set(at(id), "");
      }
    for (const box of at("ticks").querySelectorAll("input")) {
      set(box, true);
      claim(`tick ${box.value} shows none or all`, names().length > 0 && names().length < whole);
      set(box, false);
    }
    const year = () => rows().map((row) => row.cells[3].textContent).filter(Boolean);
    const head = table.tHead.rows[0].cells;
    head[3].querySelector("button").click();
    const up = year();
    head[3].querySelector("button").click();
    claim("years are not sorted", up.join() === [...up].sort().join() && year().join() === [...up].sort().reverse().join());
    head[0].querySelector("button").click();
    claim("not all is shown again", names().length === whole);
  }

  return JSON.stringify([...problems]);
})();
