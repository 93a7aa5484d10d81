// Memory over forward and backward, and how gradients flow: charts that select records, and a table of layers.

const MARGIN = { left: 70, right: 14, top: 12, bottom: 22 };
const SUPER = "⁰¹²³⁴⁵⁶⁷⁸⁹";

function makeCharts(page) {
  const memory = makeChart(byId("chart-memory"), memorySteps(), page, {
    isLog: false, write: bytesText, isArea: true, divider: recordCount,
    label: data.memory.is_measured ? "measured" : "predicted from the records",
    empty: "Nothing was recorded.",
  });
  const flow = makeChart(byId("chart-flow"), flowSteps(), page, {
    isLog: true, write: numberText, isArea: false, divider: null, label: "gradient norm, from first to last record",
    empty: flowHint(),
  });
  fillLayers(page);
  makeTabs([["memory", memory], ["flow", flow], ["layers", null]]);
  return { redraw: () => [memory, flow].forEach((chart) => chart.redraw()) };
}

function flowHint() {
  return "There are no gradient norms. Draw the graph before backward, or measure them with nt.profile(values=True).";
}

// What is drawn from left to right: a value, the node that it belongs to, and where in time it lies.
function memorySteps() {
  const { forward, backward } = data.memory;
  const swept = data.records.map((_, i) => recordCount - 1 - i);
  const passed = backward.length === recordCount ? swept : swept.filter((i) => nodes[i].inputs.length).slice(0, backward.length);
  return [
    ...forward.map((value, i) => ({ value, node: nodes[i], phase: "forward" })),
    ...backward.map((value, i) => ({ value, node: nodes[passed[i]] || null, phase: "backward" })),
  ];
}

function flowSteps() {
  const known = nodes.filter((node) => node.isRecord && node.numbers.grad_norm !== undefined);
  return known.map((node) => ({ value: node.numbers.grad_norm, node, phase: "" }));
}

function makeChart(holder, steps, page, options) {
  const canvas = holder.querySelector("canvas");
  if (!steps.length) {
    canvas.remove();
    holder.append(element("p", { class: "empty" }, options.empty));
    return { redraw: () => {} };
  }
  const shown = steps.map((step) => step.value).filter((value) => Number.isFinite(value) && (!options.isLog || value > 0));
  const most = shown.reduce((a, b) => Math.max(a, b), options.isLog ? 1e-30 : 1);
  const least = options.isLog ? shown.reduce((a, b) => Math.min(a, b), most) : 0;
  const scale = options.isLog ? logScale(least, most) : linearScale(most);
  const surface = makeSurface(canvas, draw);
  const peak = steps.findIndex((step) => step.value === most);
  canvas.setAttribute("aria-label", chartSentence());

  function chartSentence() {
    const where = steps[peak] && steps[peak].node ? ` at ${steps[peak].node.label} ${steps[peak].phase}` : "";
    const marked = steps.filter((step) => !step.phase && step.node.mark);
    return `${options.label}; largest ${options.write(most)}${where}; ${marked.length ? `${marked.length} marked; ` : ""}`
      + "arrow keys choose records";
  }

  function place(i, width) {
    return MARGIN.left + ((i + 0.5) / steps.length) * (width - MARGIN.left - MARGIN.right);
  }

  function level(value, height) {
    const share = Number.isNaN(value) ? 1 : Math.max(0, Math.min(1, scale.share(value)));
    return height - MARGIN.bottom - share * (height - MARGIN.top - MARGIN.bottom);
  }

  function draw(context, width, height) {
    drawAxis(context, width, height);
    if (options.isArea) drawArea(context, width, height);
    else drawDots(context, width, height);
    drawLabels(context, width, height);
    steps.forEach((step, i) => {
      if (page.selected && step.node === page.selected) drawCursor(context, place(i, width), height);
    });
  }

  function drawAxis(context, width, height) {
    context.font = `12px ${FONT}`;
    context.textBaseline = "middle";
    context.textAlign = "right";
    context.lineWidth = 1;
    for (const tick of scale.ticks) {
      const y = Math.round(level(tick, height)) + 0.5;
      context.strokeStyle = palette.line;
      context.beginPath();
      context.moveTo(MARGIN.left, y);
      context.lineTo(width - MARGIN.right, y);
      context.stroke();
      context.fillStyle = palette.soft;
      context.fillText(options.isLog ? powerText(tick) : options.write(tick), MARGIN.left - 8, y);
    }
    context.textAlign = "start";
  }

  function drawArea(context, width, height) {
    const floor = height - MARGIN.bottom;
    const half = (width - MARGIN.left - MARGIN.right) / steps.length / 2;
    context.beginPath();
    context.moveTo(place(0, width) - half, floor);
    steps.forEach((step, i) => {
      const y = level(step.value, height);
      context.lineTo(place(i, width) - half, y);
      context.lineTo(place(i, width) + half, y);
    });
    context.lineTo(place(steps.length - 1, width) + half, floor);
    context.closePath();
    context.fillStyle = palette.area;
    context.globalAlpha = 0.55;
    context.fill();
    context.globalAlpha = 1;
    context.strokeStyle = palette.cool;
    context.stroke();
  }

  function drawDots(context, width, height) {
    const size = steps.length > 600 ? 1.5 : steps.length > 120 ? 2.5 : 4;
    steps.forEach((step, i) => {
      const [x, y] = [place(i, width), level(step.value, height)];
      const mark = MARKS[step.node.mark];
      context.fillStyle = mark ? palette[mark.tone] : palette.soft;
      if (mark && steps.length <= 600) {
        context.font = `700 13px ${FONT}`;
        context.textAlign = "center";
        context.fillText(mark.sign, x, y);
        context.textAlign = "start";
      } else {
        context.beginPath();
        context.arc(x, y, mark ? size + 0.7 : size, 0, 7);
        context.fill();
      }
    });
  }

  function drawLabels(context, width, height) {
    const y = height - MARGIN.bottom / 2;
    context.fillStyle = palette.soft;
    context.font = `12px ${FONT}`;
    context.textBaseline = "middle";
    if (options.divider === null) {
      context.fillText(options.label, MARGIN.left, y);
      return;
    }
    const x = place(options.divider - 0.5, width);
    context.fillText(`forward (${options.label})`, MARGIN.left, y);
    context.fillText("backward", x + 5, y);
    context.setLineDash([3, 3]);
    context.strokeStyle = palette.soft;
    context.beginPath();
    context.moveTo(x, MARGIN.top);
    context.lineTo(x, height - 4);
    context.stroke();
    context.setLineDash([]);
    const top = place(peak, width);
    const isRight = top > width * 0.75;
    context.textAlign = isRight ? "right" : "left";
    context.fillStyle = palette.ink;
    context.fillText(`peak ${options.write(most)}`, top + (isRight ? -9 : 9), level(most, height) + 9);
    context.textAlign = "start";
    context.beginPath();
    context.arc(top, level(most, height), 4, 0, 7);
    context.fill();
  }

  function drawCursor(context, x, height) {
    context.strokeStyle = palette.focus;
    context.lineWidth = 2;
    context.beginPath();
    context.moveTo(x, MARGIN.top - 6);
    context.lineTo(x, height - MARGIN.bottom + 4);
    context.stroke();
    context.lineWidth = 1;
  }

  function stepAt(event) {
    const share = (event.offsetX - MARGIN.left) / (surface.width - MARGIN.left - MARGIN.right);
    return steps[Math.max(0, Math.min(steps.length - 1, Math.floor(share * steps.length)))];
  }

  canvas.addEventListener("click", (event) => page.select(stepAt(event).node, { from: canvas }));
  canvas.addEventListener("pointermove", (event) => {
    const { value, node, phase } = stepAt(event);
    byId("readout").textContent = `${node ? node.label : ""} ${phase}: ${options.write(value)}${node && node.mark && !phase ? ` ${node.mark}` : ""}`;
  });
  canvas.addEventListener("pointerleave", () => { byId("readout").textContent = ""; });
  canvas.addEventListener("keydown", (event) => {
    if (page.walk(event, "time")) event.preventDefault();
  });
  return surface;
}

function powerText(value) {
  const power = Math.round(Math.log10(value));
  return `10${power < 0 ? "⁻" : ""}${[...String(Math.abs(power))].map((digit) => SUPER[digit]).join("")}`;
}

function linearScale(most) {
  const step = 2 ** Math.ceil(Math.log2(most / 4));
  const ticks = [];
  for (let tick = 0; tick <= most; tick += step) ticks.push(tick);
  return { ticks, share: (value) => value / (most * 1.06) };
}

function logScale(least, most) {
  const low = Math.floor(Math.log10(least) - 0.05);
  const high = Math.max(low + 1, Math.ceil(Math.log10(most) + 0.05));
  const every = Math.max(1, Math.ceil((high - low) / 5));
  const ticks = [];
  for (let power = low; power <= high; power += every) ticks.push(10 ** power);
  return { ticks, share: (value) => (value > 0 ? (Math.log10(value) - low) / (high - low) : 0) };
}

function fillLayers(page) {
  const holder = byId("chart-layers");
  const layers = data.layers.map((layer) => ({ ...layer, norm: asNumber(layer.norm) }));
  if (!layers.some((layer) => layer.norm !== null)) {
    const hint = layers.length ? flowHint() : "No leaf has a name: give tensors a name, or use the modules of nt.nn.";
    holder.append(element("p", { class: "empty" }, hint));
    return;
  }
  const known = logRange(layers.map((layer) => layer.norm));
  // Three powers of ten at least, so that norms that are nearly equal look so.
  const range = logRange([known.most, Math.min(known.least, known.most / 1e3)]);
  const body = element("tbody");
  for (const layer of layers) {
    const bar = element("i");
    const share = range.share(layer.norm);
    bar.style.width = `${share === null ? 0 : 4 + 96 * share}%`;
    const mark = MARKS[layer.mark];
    const node = nodes[recordCount + layer.sources[0]];
    const reader = node.readers.length ? nodes[node.readers[0]] : node;
    body.append(element("tr", {},
      element("th", { scope: "row" }, element("button", { type: "button", onclick: () => page.select(reader, {}) }, cutText(layer.name, 60))),
      element("td", { class: "number" }, numberText(layer.norm)),
      element("td", {}, mark ? element("span", { class: `mark ${mark.tone}` }, `${mark.sign} ${layer.mark}`) : ""),
      element("td", { class: "bar", "aria-hidden": "true" }, bar)));
  }
  const { vanishing, exploding } = data.bounds;
  const meaning = `Bars are logarithmic. Vanishing: below ${vanishing} of the norm nearest to the loss; exploding: above ${exploding} times it.`;
  const head = ["layer", "gradient norm", "mark"].map((text) => element("th", { scope: "col" }, text));
  holder.append(element("table", {}, element("caption", {}, meaning),
    element("thead", {}, element("tr", {}, ...head, element("td", { class: "bar" }))), body));
}

// Tabs as the ARIA practices have them: arrows choose, Tab goes on to the panel.
function makeTabs(tabs) {
  function choose(chosen) {
    for (const [name, chart] of tabs) {
      const isChosen = name === chosen;
      byId(`tab-${name}`).setAttribute("aria-selected", String(isChosen));
      byId(`tab-${name}`).tabIndex = isChosen ? 0 : -1;
      byId(`chart-${name}`).hidden = !isChosen;
      if (isChosen && chart) chart.redraw();
    }
  }
  tabs.forEach(([name], i) => {
    const tab = byId(`tab-${name}`);
    tab.addEventListener("click", () => choose(name));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = tabs[(i + step + tabs.length) % tabs.length][0];
      choose(next);
      byId(`tab-${next}`).focus();
      event.preventDefault();
    });
  });
  choose("memory");
}
