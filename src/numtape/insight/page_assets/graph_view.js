// The graph on a canvas: pan, zoom, click, and keys that walk along its links.

const CARD = { width: data.places.width, height: data.places.height };
// Sources with more readers than this would cover the picture: their links show when they are selected.
const MOST_LINKS = 8;
// In a large graph, how much is drawn of a link that leads to another column.
const STUB = 14;
const hasStubs = recordCount > 300;
// Below the first scale there is no text, below the second no mark.
const TEXT_SCALE = 0.32;
const MARK_SCALE = 0.14;
const COLOURINGS = {
  kind: { text: "kind of op" },
  bytes: { text: "bytes", of: (node) => node.bytes },
  seconds: { text: "forward time", of: (node) => node.numbers.seconds },
  backward_seconds: { text: "backward time", of: (node) => node.numbers.backward_seconds },
  grad_norm: { text: "gradient norm", of: (node) => node.numbers.grad_norm },
};

function makeGraphView(page) {
  const canvas = byId("graph");
  const camera = { x: 0, y: 0, scale: 1 };
  const surface = makeSurface(canvas, draw);
  let colouring = "kind";
  let range = null;
  let isFitted = false;

  function bounds() {
    let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
    for (const node of nodes) {
      left = Math.min(left, node.x);
      right = Math.max(right, node.x);
      top = Math.min(top, node.y);
      bottom = Math.max(bottom, node.y);
    }
    if (!nodes.length) return [0, 0, 1, 1];
    return [left - CARD.width * 0.75, top - CARD.height, right + CARD.width * 0.75, bottom + CARD.height];
  }
  const world = bounds();

  function fit() {
    const [left, top, right, bottom] = world;
    camera.scale = Math.min(1.25, surface.width / (right - left), surface.height / (bottom - top));
    camera.x = (left + right) / 2;
    camera.y = (top + bottom) / 2;
    changed();
  }

  function changed() {
    canvas.dataset.x = camera.x;
    canvas.dataset.y = camera.y;
    canvas.dataset.scale = camera.scale;
    surface.redraw();
  }

  function zoom(factor, x = surface.width / 2, y = surface.height / 2) {
    const [worldX, worldY] = toWorld(x, y);
    camera.scale = Math.max(0.002, Math.min(4, camera.scale * factor));
    camera.x = worldX - (x - surface.width / 2) / camera.scale;
    camera.y = worldY - (y - surface.height / 2) / camera.scale;
    changed();
  }

  function pan(x, y) {
    camera.x -= x / camera.scale;
    camera.y -= y / camera.scale;
    changed();
  }

  function toWorld(x, y) {
    return [camera.x + (x - surface.width / 2) / camera.scale, camera.y + (y - surface.height / 2) / camera.scale];
  }

  // Bring a node into view: near enough to read it, and moved only if it is not well inside.
  function show(node) {
    if (camera.scale < 0.5) camera.scale = 0.9;
    const x = (node.x - camera.x) * camera.scale;
    const y = (node.y - camera.y) * camera.scale;
    if (Math.abs(x) > surface.width * 0.4 || Math.abs(y) > surface.height * 0.38) {
      camera.x = node.x;
      camera.y = node.y;
    }
    changed();
  }

  function draw(context, width, height) {
    if (!isFitted) {
      isFitted = true;
      fit();
    }
    context.translate(width / 2, height / 2);
    context.scale(camera.scale, camera.scale);
    context.translate(-camera.x, -camera.y);
    const [left, top] = toWorld(0, 0);
    const [right, bottom] = toWorld(width, height);
    const view = { left: left - CARD.width, top: top - CARD.height, right: right + CARD.width, bottom: bottom + CARD.height };
    drawLinks(context, view);
    for (const node of nodes) {
      if (node.x > view.left && node.x < view.right && node.y > view.top && node.y < view.bottom) drawNode(context, node);
    }
  }

  function drawLinks(context, view) {
    const isFar = camera.scale < 0.12;
    context.strokeStyle = palette.edge;
    context.globalAlpha = isFar ? 0.35 : page.matches ? 0.3 : 0.8;
    context.lineWidth = Math.max(1.2, 0.6 / camera.scale);
    context.beginPath();
    for (const node of nodes) {
      for (const id of node.inputs) {
        const from = nodes[id];
        if (!from.isRecord && from.readers.length > MOST_LINKS) continue;
        if (isInside(from, node, view)) traceLink(context, from, node, false);
      }
    }
    context.stroke();
    context.globalAlpha = 1;
    const chosen = page.selected;
    if (!chosen) return;
    context.strokeStyle = palette.focus;
    context.lineWidth = Math.max(2.6, 1.2 / camera.scale);
    context.beginPath();
    for (const id of chosen.inputs) traceLink(context, nodes[id], chosen, true);
    for (const id of chosen.readers) traceLink(context, chosen, nodes[id], true);
    context.stroke();
  }

  function isInside(from, to, view) {
    return Math.max(from.x, to.x) > view.left && Math.min(from.x, to.x) < view.right
      && Math.max(from.y, to.y) > view.top && Math.min(from.y, to.y) < view.bottom;
  }

  function traceLink(context, from, to, isWhole) {
    const [startY, endY] = [from.y + CARD.height / 2, to.y - CARD.height / 2];
    context.moveTo(from.x, startY);
    const rise = endY - startY;
    if (rise < 0 && hasStubs && !isWhole) {
      context.lineTo(from.x, startY + STUB);
      context.moveTo(to.x, endY - STUB);
      context.lineTo(to.x, endY);
      return;
    }
    // A link that passes rows keeps to the side of what stands there; sources stand on the other side.
    const isLong = rise > CARD.height * 2 && Math.abs(from.x - to.x) < CARD.width;
    const aside = isLong ? CARD.width * 0.95 + Math.min(80, rise * 0.05) : 0;
    const bend = Math.max(24, Math.min(120, Math.abs(rise) / 2));
    context.bezierCurveTo(from.x - aside, startY + bend, to.x - aside, endY - bend, to.x, endY);
  }

  function drawNode(context, node) {
    const [x, y] = [node.x - CARD.width / 2, node.y - CARD.height / 2];
    const isPale = page.matches && !page.matches.has(node.id);
    const isClear = camera.scale > TEXT_SCALE;
    const colour = colourOf(node);
    context.globalAlpha = isPale ? 0.28 : 1;
    context.beginPath();
    context.roundRect(x, y, CARD.width, CARD.height, node.isRecord ? 6 : CARD.height / 2);
    context.fillStyle = isClear ? palette.card : colour;
    context.fill();
    if (isClear) drawText(context, node, x, y, colour);
    if (node.id === (page.selected && page.selected.id)) {
      context.strokeStyle = palette.focus;
      context.lineWidth = Math.max(4, 3 / camera.scale);
      context.stroke();
    } else if (page.matches && !isPale) {
      context.strokeStyle = palette.ink;
      context.lineWidth = Math.max(2, 2 / camera.scale);
      context.stroke();
    } else if (isClear) {
      context.strokeStyle = palette.edge;
      context.lineWidth = 1;
      context.setLineDash(node.isRecord || node.kind === "leaf" ? [] : [4, 3]);
      context.stroke();
      context.setLineDash([]);
    }
    if (node.mark && camera.scale > MARK_SCALE) drawMark(context, node);
    context.globalAlpha = 1;
  }

  function drawText(context, node, x, y, colour) {
    context.save();
    context.clip();
    context.fillStyle = colour;
    context.fillRect(x, y, node.isRecord ? 9 : 16, CARD.height);
    context.restore();
    const left = x + (node.isRecord ? 17 : 23);
    const room = CARD.width - (left - x) - (node.mark ? 26 : 8);
    context.textBaseline = "alphabetic";
    context.fillStyle = palette.ink;
    context.font = `600 13px ${FONT}`;
    const title = node.isRecord && node.name ? `${node.label} · ${node.name}` : node.label;
    const most = Math.floor(room / 6.8);
    // Of a path, the end says most.
    const isPath = !node.isRecord && title.length > most;
    context.fillText(isPath ? `…${title.slice(1 - most)}` : cutText(title, most), left, y + 18, room);
    context.fillStyle = palette.soft;
    context.font = `11.5px ${FONT}`;
    context.fillText(cutText(`${node.shape} ${node.dtype}`, Math.floor(room / 6.1)), left, y + 35, room);
  }

  function drawMark(context, node) {
    const mark = MARKS[node.mark];
    const size = Math.max(17, 9 / camera.scale);
    context.fillStyle = palette[mark.tone];
    context.font = `700 ${size}px ${FONT}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillText(mark.sign, node.x + CARD.width / 2 - 15, node.y - 6);
    context.textAlign = "start";
  }

  function colourOf(node) {
    if (colouring === "kind") return (KINDS[node.kind] || KINDS.dense).colour;
    const share = range.share(COLOURINGS[colouring].of(node));
    return share === null ? KINDS.constant.colour : rampColour(share);
  }

  function colourBy(name) {
    colouring = name;
    range = name === "kind" ? null : logRange(nodes.map(COLOURINGS[name].of));
    showLegend(name, range);
    surface.redraw();
  }

  function nodeAt(x, y) {
    const [worldX, worldY] = toWorld(x, y);
    const slack = Math.max(0, 6 / camera.scale - CARD.height / 2);
    return nodes.findLast((node) => Math.abs(node.x - worldX) <= CARD.width / 2 + slack
      && Math.abs(node.y - worldY) <= CARD.height / 2 + slack);
  }

  listenToPointers(canvas, { pan, zoom, choose: (x, y) => page.select(nodeAt(x, y) || null, { from: canvas }) });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[event.key];
    if (step && event.shiftKey) pan(...step);
    else if (event.key === "+" || event.key === "=") zoom(1.3);
    else if (event.key === "-") zoom(1 / 1.3);
    else if (event.key === "0") fit();
    else if (!page.walk(event)) return;
    event.preventDefault();
  });
  byId("zoom-in").addEventListener("click", () => zoom(1.3));
  byId("zoom-out").addEventListener("click", () => zoom(1 / 1.3));
  byId("zoom-fit").addEventListener("click", fit);
  const known = (name) => name === "kind" || nodes.some((node) => node.isRecord && COLOURINGS[name].of(node) > 0);
  for (const name of Object.keys(COLOURINGS).filter(known)) {
    byId("colour").append(element("option", { value: name }, COLOURINGS[name].text));
  }
  byId("colour").addEventListener("change", (event) => colourBy(event.target.value));
  colourBy("kind");
  return { redraw: surface.redraw, show, fit };
}

// Return where numbers lie between the smallest and the largest, by their logarithms; null for those without one.
function logRange(values) {
  const known = values.filter((value) => value > 0 && Number.isFinite(value));
  const [least, most] = known.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
  const share = (value) => {
    if (value === undefined || value === null || Number.isNaN(value) || !known.length) return null;
    if (value <= 0) return 0;
    return value >= most ? 1 : Math.log(value / least) / Math.log(most / least || Math.E);
  };
  return { least, most, share };
}

function showLegend(colouring, range) {
  const present = new Set(nodes.map((node) => node.kind));
  const swatch = (colour, text) => {
    const square = element("i");
    square.style.background = colour;
    return element("li", {}, square, text);
  };
  const rows = colouring === "kind"
    ? Object.keys(KINDS).filter((kind) => present.has(kind)).map((kind) => swatch(KINDS[kind].colour, KINDS[kind].text))
    : [swatch(RAMP[0], `low: ${writeColouring(colouring, range.least)}`),
      swatch(RAMP[RAMP.length - 1], `high: ${writeColouring(colouring, range.most)}`),
      swatch(KINDS.constant.colour, "unknown")];
  byId("legend").replaceChildren(...rows);
}

function writeColouring(colouring, value) {
  return Number.isFinite(value) ? writeNumber(colouring, value) : "unknown";
}

// Drag to pan, wheel or two fingers to zoom, click to choose.
function listenToPointers(canvas, { pan, zoom, choose }) {
  const pointers = new Map();
  let moved = 0;
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const spread = () => {
    const [[ax, ay], [bx, by]] = pointers.values();
    return { distance: Math.hypot(ax - bx, ay - by), x: (ax + bx) / 2, y: (ay + by) / 2 };
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (!pointers.size) moved = 0;
    pointers.set(event.pointerId, at(event));
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (!before) return;
    const old = pointers.size === 2 ? spread() : null;
    const [x, y] = at(event);
    pointers.set(event.pointerId, [x, y]);
    moved += Math.abs(x - before[0]) + Math.abs(y - before[1]);
    canvas.classList.toggle("dragged", moved > 4);
    if (old) {
      const now = spread();
      pan(now.x - old.x, now.y - old.y);
      zoom(now.distance / (old.distance || 1), now.x, now.y);
    } else if (moved > 4) pan(x - before[0], y - before[1]);
  });
  const end = (event) => {
    const wasHere = pointers.delete(event.pointerId);
    canvas.classList.remove("dragged");
    if (wasHere && event.type === "pointerup" && moved <= 4) choose(...at(event));
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0015)), ...at(event));
  }, { passive: false });
}
