// Colours, and canvases that follow size, pixel density and theme.

// Okabe and Ito's colours, which are told apart with any kind of colour vision.
const KINDS = {
  elementwise: { colour: "#56b4e9", text: "elementwise" },
  terms: { colour: "#e69f00", text: "products (matmul, convolution)" },
  matrices: { colour: "#0072b2", text: "matrices (solve, cholesky)" },
  dense: { colour: "#d55e00", text: "other (each on all)" },
  lanes: { colour: "#009e73", text: "along axes (sum, softmax)" },
  moves: { colour: "#cc79a7", text: "moves elements (reshape)" },
  scatters: { colour: "#f0e442", text: "scatters elements" },
  leaf: { colour: "#7d8894", text: "leaf" },
  constant: { colour: "#b9c0c8", text: "constant" },
  earlier: { colour: "#b9c0c8", text: "recorded earlier" },
};
// From cividis: brightness alone tells the order.
const RAMP = ["#00224e", "#35456c", "#666970", "#948e77", "#c8b866", "#fee838"];

function rampColour(share) {
  return RAMP[Math.max(0, Math.min(RAMP.length - 1, Math.floor(share * RAMP.length)))];
}

function cssColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

let palette = {};
function readPalette() {
  palette = {};
  for (const name of ["paper", "card", "ink", "soft", "line", "edge", "focus", "chosen", "cool", "hot", "area"]) {
    palette[name] = cssColour(name);
  }
}

// Keep a canvas as large as it is shown, and draw it at most once a frame.
function makeSurface(canvas, draw) {
  const surface = { canvas, context: canvas.getContext("2d"), width: 0, height: 0, redraw };
  let isWaiting = false;
  function redraw() {
    if (isWaiting) return;
    isWaiting = true;
    requestAnimationFrame(() => {
      isWaiting = false;
      if (!surface.width || !surface.height) return;
      const density = window.devicePixelRatio || 1;
      surface.context.setTransform(density, 0, 0, density, 0, 0);
      surface.context.clearRect(0, 0, surface.width, surface.height);
      draw(surface.context, surface.width, surface.height);
    });
  }
  new ResizeObserver(() => {
    const box = canvas.getBoundingClientRect();
    const density = window.devicePixelRatio || 1;
    surface.width = box.width;
    surface.height = box.height;
    canvas.width = Math.round(box.width * density);
    canvas.height = Math.round(box.height * density);
    redraw();
  }).observe(canvas);
  return surface;
}

function cutText(text, most) {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}

const FONT = 'system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif';
