// Ask a built site's own search worker: node search.js SITE < queries; prints the first pages of each as JSON.
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const site = process.argv[2];
const folder = path.join(site, "assets/javascripts/workers");
const worker = fs.readdirSync(folder).find((name) => /^search\..*\.js$/.test(name));
const listeners = [];
let answer;

const scope = {
  console, setTimeout, clearTimeout, URL, TextDecoder, TextEncoder, performance,
  addEventListener: (kind, listener) => kind === "message" && listeners.push(listener),
  postMessage: (message) => answer(message),
  MessageEvent,
  dispatchEvent: (event) => listeners.forEach((listener) => listener(event)),
  location: { href: `http://site/assets/javascripts/workers/${worker}` },
  importScripts: (...names) => names.forEach((name) => load(path.join(folder, name.replace(/^.*workers\//, "")))),
};
scope.self = scope;
const context = vm.createContext(scope);
const load = (file) => vm.runInContext(fs.readFileSync(file, "utf8"), context);

const send = (message) =>
  new Promise((resolve) => {
    answer = resolve;
    listeners.forEach((listener) => listener({ data: message }));
  });

(async () => {
  load(path.join(folder, worker));
  const { config, docs } = JSON.parse(fs.readFileSync(path.join(site, "search/search_index.json"), "utf8"));
  await send({ type: 0, data: { config, docs, options: { suggest: false } } });
  for (const query of fs.readFileSync(0, "utf8").split("\n").filter(Boolean)) {
    const { data } = await send({ type: 2, data: query });
    console.log(JSON.stringify(data.items.slice(0, 10).map(([first]) => first.location.split("#")[0])));
  }
})();
