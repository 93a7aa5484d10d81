// The list of records, of which only the visible rows exist, and all that is known about the selected one.

const ROW = 26;
const MOST_READERS = 40;

function makeList(page) {
  const list = byId("list");
  const space = byId("list-space");
  const rows = new Map();
  let shown = nodes;

  function fill() {
    const first = Math.max(0, Math.floor(list.scrollTop / ROW) - 8);
    const last = Math.min(shown.length, first + Math.ceil(list.clientHeight / ROW) + 16);
    for (const [position, row] of rows) {
      if (position < first || position >= last) {
        row.remove();
        rows.delete(position);
      }
    }
    for (let position = first; position < last; position++) {
      if (!rows.has(position)) rows.set(position, makeRow(shown[position], position));
    }
  }

  function makeRow(node, position) {
    const mark = MARKS[node.mark];
    const row = element("div", {
      class: "option", role: "option", id: `option-${node.id}`, "aria-label": sentence(node),
      "aria-setsize": shown.length, "aria-posinset": position + 1,
      "aria-selected": String(node === page.selected),
      onclick: () => page.select(node, { from: list }),
    }, element("b", {}, node.isRecord && node.name ? `${node.label} · ${node.name}` : node.label),
    element("span", { class: "soft" }, node.shape));
    if (mark) row.append(element("span", { class: `mark ${mark.tone}` }, mark.sign));
    row.append(element("span", { class: "end" }, bytesText(node.bytes)));
    row.style.top = `${position * ROW}px`;
    list.append(row);
    return row;
  }

  function show(found) {
    shown = found ? nodes.filter((node) => found.has(node.id)) : nodes;
    space.style.height = `${shown.length * ROW}px`;
    rows.forEach((row) => row.remove());
    rows.clear();
    list.scrollTop = 0;
    fill();
    reveal();
  }

  // Scroll to the selected row, and make the rows say which one it is.
  function reveal() {
    const position = shown.indexOf(page.selected);
    if (position >= 0) {
      const top = position * ROW;
      if (top < list.scrollTop) list.scrollTop = top;
      else if (top + ROW > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW - list.clientHeight;
      list.setAttribute("aria-activedescendant", `option-${page.selected.id}`);
    } else list.removeAttribute("aria-activedescendant");
    fill();
    for (const [at, row] of rows) row.setAttribute("aria-selected", String(shown[at] === page.selected));
  }

  list.addEventListener("scroll", fill);
  new ResizeObserver(fill).observe(list);
  list.addEventListener("keydown", (event) => {
    const page_rows = Math.max(1, Math.floor(list.clientHeight / ROW) - 1);
    const now = shown.indexOf(page.selected);
    const next = {
      ArrowDown: now + 1, ArrowUp: now < 0 ? 0 : now - 1, PageDown: now + page_rows, PageUp: now - page_rows,
      Home: 0, End: shown.length - 1,
    }[event.key];
    if (next === undefined || !shown.length) return;
    page.select(shown[Math.max(0, Math.min(shown.length - 1, next))], { from: list });
    event.preventDefault();
  });
  show(null);
  return { show, reveal };
}

function showDetails(page) {
  const node = page.selected;
  const holder = byId("details");
  if (!node) {
    holder.replaceChildren(element("p", { class: "empty" },
      nodes.length ? "Choose a record in the graph or in the list." : "Nothing was recorded here."));
    return;
  }
  const mark = MARKS[node.mark];
  const title = element("h2", {}, node.isRecord && node.name ? `${node.label} · ${node.name}` : node.label);
  const facts = element("dl");
  const fact = (name, ...value) => facts.append(element("dt", {}, name), element("dd", {}, ...value));
  if (!node.isRecord) fact("kind", (KINDS[node.kind] || { text: node.kind }).text);
  fact("shape", node.shape);
  fact("dtype", node.dtype);
  fact("bytes", `${node.bytes.toLocaleString("en")} (${bytesText(node.bytes)})`);
  if (node.isRecord) fact("kept", { "yes": "yes, for derivatives", "": "no rule reads it" }[node.kept] || node.kept);
  if (node.layer) fact("layer", node.layer);
  if (node.params) fact("parameters", element("code", {}, node.params));
  if (node.line) fact("line", element("code", {}, node.line));
  if (node.file) fact("file", element("code", {}, node.file));
  for (const name of new Set([...Object.keys(data.meanings), ...Object.keys(node.numbers)])) {
    if (!(name in node.numbers)) continue;
    const text = writeNumber(name, node.numbers[name]);
    fact(name.replaceAll("_", " "), element("span", { title: data.meanings[name] || name }, text));
  }
  if (mark) fact("gradient", element("span", { class: `mark ${mark.tone}` }, `${mark.sign} ${node.mark}`));
  holder.replaceChildren(title, facts);
  addLinks(holder, "Inputs", node.given.map((link) => (typeof link === "string" ? link : nodes[link >= 0 ? link : recordCount + ~link])), page);
  addLinks(holder, "Read by", node.readers.map((id) => nodes[id]), page);
  holder.scrollTop = 0;
}

function addLinks(holder, title, links, page) {
  if (!links.length) return;
  const items = element("ul");
  for (const link of links.slice(0, MOST_READERS)) {
    items.append(element("li", {}, typeof link === "string"
      ? element("code", {}, link)
      : element("button", { type: "button", onclick: () => page.select(link, {}) }, `${link.label} ${link.shape}`)));
  }
  if (links.length > MOST_READERS) items.append(element("li", {}, `and ${links.length - MOST_READERS} more`));
  holder.append(element("h3", {}, title), items);
}
