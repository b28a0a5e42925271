// Canvases, colours and tooltips.
// cividis, and a scale from blue over grey to orange: both keep their order for every kind of colour blindness
const CIVIDIS = [[0, 34, 78], [18, 53, 112], [59, 73, 108], [87, 93, 109], [112, 113, 115], [138, 134, 120],
  [165, 156, 116], [195, 179, 105], [225, 204, 85], [254, 232, 56]];
const SIGNED = [[0, 90, 180], [70, 140, 205], [150, 190, 225], [226, 226, 226], [245, 190, 140], [225, 130, 60],
  [180, 70, 0]];
const NAMES = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#882255", "#8C8C8C",
  "#555555"];
const PARTS = { compute: "#D55E00", exchange: "#56B4E9", sync: "#F0E442" };
const DECADES = 4;
let printing = false;

/** A scale as 256 colours for ImageData (little-endian ABGR) and as CSS. */
function scaleOf(stops) {
  const packed = new Uint32Array(256), css = [];
  for (let at = 0; at < 256; at++) {
    const place = (at / 255) * (stops.length - 1), low = Math.min(Math.floor(place), stops.length - 2);
    const mixed = stops[low].map((part, k) => Math.round(part + (place - low) * (stops[low + 1][k] - part)));
    packed[at] = packedColour(mixed);
    css.push(`rgb(${mixed.join(" ")})`);
  }
  return { packed, css };
}

function packedColour([red, green, blue]) {
  return (0xff000000 | (blue << 16) | (green << 8) | red) >>> 0;
}

function hexParts(text) {
  return [1, 3, 5].map(at => parseInt(text.slice(at, at + 2), 16));
}

const ONE_WAY = scaleOf(CIVIDIS), BOTH_WAYS = scaleOf(SIGNED);

/** Colours of the page as it is now; of paper while it is printed. */
function ink() {
  if (printing) return { ink: "#000000", soft: "#333333", paper: "#ffffff", line: "#bbbbbb", panel: "#f2f2f2" };
  const style = getComputedStyle(document.documentElement);
  const get = name => style.getPropertyValue(name).trim();
  return { ink: get("--ink"), soft: get("--soft"), paper: get("--paper"), line: get("--line"), panel: get("--panel") };
}

/** How the values of a measure become colours: {level(0..1) -> value, index(value) -> 0..255, packed, css}. */
function colouring(measure, values) {
  if (measure.kind === "names") {
    const css = facts.layer_colours;
    return { css, packed: Uint32Array.from(css, hex => packedColour(hexParts(hex))), index: at => at };
  }
  const [low, high] = rangeOf(measure, values);
  const scale = measure.kind === "signed" ? BOTH_WAYS : ONE_WAY;
  if (state.log && measure.kind !== "signed" && high > 0) return logarithmic(values, high, scale);
  const factor = high > low ? 255 / (high - low) : 0;
  const index = value => (factor ? Math.max(0, Math.min(255, Math.round((value - low) * factor))) : low < 0 ? 128 : 0);
  return { index, level: at => low + at * (high - low), ...scale };
}

/** Colours by the logarithm, over at most DECADES below the largest value, so that it does not drown the others. */
function logarithmic(values, high, scale) {
  let least = high;
  for (const value of values) if (value > 0 && value < least) least = value;
  const low = Math.max(least, high / 10 ** DECADES) * (least < high ? 1 : 0.5), ratio = Math.log(high / low);
  const index = value => (value <= low ? 0 : Math.min(255, Math.round((255 * Math.log(value / low)) / ratio)));
  return { index, level: at => low * Math.exp(at * ratio), ...scale };
}

/** Lowest and highest colour: from 0, or for memory from the least, as no tile has none; signed ones are symmetric. */
function rangeOf(measure, values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (!(high >= low)) return [0, 1];
  if (measure.kind === "signed") {
    const most = Math.max(Math.abs(low), Math.abs(high)) || 1;
    return [-most, most];
  }
  return [measure.name === "memory" && low < high ? low : 0, high || 1];
}

/** Give a canvas the size it is shown at, in dots of the screen; returns its context, scaled to CSS pixels. */
function sized(canvas, height) {
  const width = Math.max(1, Math.floor(canvas.parentElement.clientWidth));
  const dots = window.devicePixelRatio || 1;
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(width * dots);
  canvas.height = Math.round(height * dots);
  const context = canvas.getContext("2d");
  context.setTransform(dots, 0, 0, dots, 0, 0);
  context.fillStyle = ink().paper;
  context.fillRect(0, 0, width, height);
  context.font = "12px system-ui, sans-serif";
  return { context, width, height };
}

/** An image of rows x columns coloured dots, drawn into a box without blurring. */
function stretched(context, dots, columnCount, rowCount, box) {
  const image = document.createElement("canvas");
  image.width = columnCount;
  image.height = rowCount;
  const data = new ImageData(new Uint8ClampedArray(dots.buffer), columnCount, rowCount);
  image.getContext("2d").putImageData(data, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(image, box.x, box.y, box.width, box.height);
}

/** The scale under a picture: colours with numbers and unit, or names. */
function showScale(holder, measure, colours) {
  holder.replaceChildren();
  if (measure.kind === "names") {
    facts.layers.forEach((name, at) => {
      const patch = make("i", { className: "walk-patch" });
      patch.style.background = colours.css[at];
      const count = facts.layer_of.filter(one => one === at).length;
      holder.append(make("span", { className: "walk-key" }, patch, `${name || "none"} (${thousands(count)})`));
    });
    const shared = new Set(facts.layer_colours).size < facts.layers.length;
    if (shared) holder.append("Layers that are far apart share a colour.");
    return;
  }
  const bar = make("div", { className: "walk-bar" });
  const stops = [0, 51, 102, 153, 204, 255].map(at => `${colours.css[at]} ${(at / 2.55).toFixed(0)}%`);
  bar.style.background = `linear-gradient(to right, ${stops.join(", ")})`;
  const ticks = make("div", { className: "walk-ticks" });
  for (const at of [0, 0.5, 1]) {
    ticks.append(make("span", {}, measure.shown(colours.level(at))));
  }
  const unit = measure.unit === "bytes" || measure.label.includes(measure.unit) ? "" : `, ${measure.unit}`;
  holder.append(bar, ticks, make("div", { className: "walk-unit" }, measure.label + unit));
}

function showTip(event, ...lines) {
  const tip = element("walk-tip");
  tip.replaceChildren(...lines.map(line => make("div", {}, line)));
  tip.hidden = false;
  const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, room))}px`;
  const below = event.clientY + 16 + tip.offsetHeight < window.innerHeight;
  tip.style.top = `${below ? event.clientY + 16 : event.clientY - tip.offsetHeight - 10}px`;
}

function hideTip() {
  element("walk-tip").hidden = true;
}
