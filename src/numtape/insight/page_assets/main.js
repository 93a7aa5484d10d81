// What the parts share: the selected node, the matches of the search, the theme.

const page = { selected: null, matches: null, select, walk };

function select(node, { from = null, isQuiet = false } = {}) {
  page.selected = node;
  document.documentElement.dataset.selected = node ? node.id : "";
  showDetails(page);
  list.reveal();
  if (node && (!from || from.id !== "graph" || isQuiet)) view.show(node);
  view.redraw();
  charts.redraw();
  byId("graph").setAttribute("aria-label", node ? sentence(node) : graphSentence());
  if (node) byId("live").textContent = sentence(node);
}

// Move the selection as a key says; say whether it was such a key.
function walk(event, along = "links") {
  if (event.ctrlKey || event.metaKey || event.altKey || !nodes.length) return false;
  const now = page.selected;
  const clamp = (id) => nodes[Math.max(0, Math.min(nodes.length - 1, id))];
  const steps = {
    ArrowLeft: () => (now ? clamp(now.id - 1) : nodes[0]),
    ArrowRight: () => (now ? clamp(now.id + 1) : nodes[0]),
    ArrowUp: () => (now ? nodes[now.inputs[0]] || now : nodes[0]),
    ArrowDown: () => (now ? nodes[now.readers[0]] || now : nodes[0]),
    Home: () => nodes[0],
    End: () => clamp(recordCount - 1),
    Escape: () => null,
  };
  if (!(event.key in steps) || (along === "time" && ["ArrowUp", "ArrowDown"].includes(event.key))) return false;
  select(steps[event.key](), { from: event.currentTarget, isQuiet: true });
  return true;
}

function graphSentence() {
  return `Graph of ${recordCount} records and ${nodes.length - recordCount} sources; arrow keys walk along the links`;
}

// All words must be found, each anywhere in what is known about a node.
function search(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  page.matches = words.length
    ? new Set(nodes.filter((node) => words.every((word) => node.words.includes(word))).map((node) => node.id))
    : null;
  const found = page.matches ? page.matches.size : 0;
  byId("search-count").textContent = page.matches ? `${found} ${found === 1 ? "match" : "matches"}` : "";
  list.show(page.matches);
  view.redraw();
}

function goToMatch(step) {
  if (!page.matches || !page.matches.size) return;
  const found = nodes.filter((node) => page.matches.has(node.id));
  const now = found.indexOf(page.selected);
  select(found[now < 0 ? (step > 0 ? 0 : found.length - 1) : (now + step + found.length) % found.length]);
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  byId("theme").setAttribute("aria-pressed", String(theme === "dark"));
  readPalette();
}

const systemIsDark = window.matchMedia("(prefers-color-scheme: dark)");
setTheme(systemIsDark.matches ? "dark" : "light");
const list = makeList(page);
const view = makeGraphView(page);
const charts = makeCharts(page);

systemIsDark.addEventListener("change", () => changeTheme(systemIsDark.matches ? "dark" : "light"));
byId("theme").addEventListener("click", () => {
  changeTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
});
function changeTheme(theme) {
  setTheme(theme);
  view.redraw();
  charts.redraw();
}

byId("search").addEventListener("input", (event) => search(event.target.value));
byId("search").addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    event.target.value = "";
    search("");
  } else if (event.key === "Enter") goToMatch(event.shiftKey ? -1 : 1);
});
byId("search-next").addEventListener("click", () => goToMatch(1));
byId("search-previous").addEventListener("click", () => goToMatch(-1));
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !["INPUT", "SELECT"].includes(document.activeElement.tagName)) {
    event.preventDefault();
    byId("search").focus();
  }
});

const total = (key) => bytesText(data.records.reduce((sum, record) => sum + (key(record) ? record.bytes : 0), 0));
const peak = [...data.memory.forward, ...data.memory.backward].reduce((a, b) => Math.max(a, b), 0);
byId("title").textContent = data.title;
byId("totals").textContent = [
  `${recordCount.toLocaleString("en")} records`, `${total(() => true)} computed`,
  `${total((record) => record.kept === "yes")} kept`, `peak ${bytesText(peak)}`,
].join(" · ");
byId("notes").append(...data.notes.map((note) => element("li", {}, note)));
byId("graph").setAttribute("aria-label", graphSentence());
showDetails(page);
