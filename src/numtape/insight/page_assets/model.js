// The graph that the page shows: nodes with links both ways, and how numbers are written.

const data = JSON.parse(document.getElementById("data").textContent);
const recordCount = data.records.length;

const MARKS = {
  "vanishing": { sign: "▼", tone: "cool" },
  "exploding": { sign: "▲", tone: "hot" },
  "zero": { sign: "∅", tone: "cool" },
  "not finite": { sign: "✕", tone: "hot" },
};

// Records first, as they are numbered, then sources; a node is known by its place here.
const nodes = [
  ...data.records.map((record, i) => makeNode(record, i, data.places.records[i], true)),
  ...data.sources.map((source, i) => makeNode(source, recordCount + i, data.places.sources[i], false)),
];
linkNodes();

function makeNode(given, id, place, isRecord) {
  const numbers = {};
  for (const [name, value] of Object.entries(given.numbers || {})) numbers[name] = asNumber(value);
  const site = isRecord ? data.sites[given.at] : null;
  const node = {
    id, isRecord, numbers,
    x: place[0], y: place[1],
    kind: given.kind,
    label: isRecord ? `%${id} ${given.op}` : given.name,
    op: isRecord ? given.op : given.kind,
    name: given.name || "",
    shape: shapeText(given.shape),
    dtype: given.dtype,
    bytes: given.bytes,
    kept: given.kept || "",
    params: given.params || "",
    layer: given.layer || "",
    mark: given.mark || "",
    line: site ? site.line : "",
    file: site ? site.file : "",
    given: given.inputs || [],
    inputs: [], readers: [],
  };
  const words = [node.label, node.name, node.shape, node.dtype, node.line, node.layer, node.params, node.mark];
  if (node.kept) words.push(node.kept === "yes" ? "kept" : node.kept);
  if (!isRecord) words.push(given.kind);
  if (numbers.nans) words.push("nan");
  if (numbers.infs) words.push("inf");
  node.words = words.join(" ").toLowerCase();
  return node;
}

function linkNodes() {
  for (const node of nodes) {
    for (const link of node.given) {
      if (typeof link === "string") continue;
      const id = link >= 0 ? link : recordCount + ~link;
      if (!node.inputs.includes(id)) {
        node.inputs.push(id);
        nodes[id].readers.push(node.id);
      }
    }
  }
}

// JSON has no number that is not finite: these come as text.
function asNumber(value) {
  if (typeof value !== "string") return value;
  return value === "inf" ? Infinity : value === "-inf" ? -Infinity : NaN;
}

function shapeText(shape) {
  if (shape.length && Array.isArray(shape[0])) return shape.map(shapeText).join(", ");
  return shape.length === 1 ? `(${shape[0]},)` : `(${shape.join(", ")})`;
}

function bytesText(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  const power = Math.min(4, Math.floor(Math.log2(bytes) / 10));
  const scaled = bytes / 1024 ** power;
  return `${scaled < 100 ? scaled.toFixed(1) : Math.round(scaled)} ${["B", "KB", "MB", "GB", "TB"][power]}`;
}

function secondsText(seconds) {
  if (seconds >= 1) return `${seconds.toPrecision(3)} s`;
  return seconds >= 1e-3 ? `${(seconds * 1e3).toPrecision(3)} ms` : `${(seconds * 1e6).toPrecision(3)} µs`;
}

function numberText(value) {
  if (value === null || value === undefined) return "unknown";
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "∞" : "−∞";
  if (Number.isInteger(value) && Math.abs(value) < 1e7) return value.toLocaleString("en");
  return String(Number(value.toPrecision(4)));
}

function writeNumber(name, value) {
  if (name.endsWith("seconds")) return secondsText(value);
  return name.endsWith("bytes") ? bytesText(value) : numberText(value);
}

// One line that says what a node is, for labels and announcements.
function sentence(node) {
  const parts = [node.label];
  if (node.isRecord && node.name) parts.push(node.name);
  parts.push(`shape ${node.shape}`, node.dtype, bytesText(node.bytes));
  if (node.numbers.seconds !== undefined) parts.push(secondsText(node.numbers.seconds));
  if (node.numbers.grad_norm !== undefined) parts.push(`gradient norm ${numberText(node.numbers.grad_norm)}`);
  if (node.mark) parts.push(node.mark);
  if (node.line) parts.push(node.line);
  return parts.join(", ");
}

// Return an element with attributes and children; text stays text, whatever it holds.
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function byId(id) {
  return document.getElementById(id);
}
