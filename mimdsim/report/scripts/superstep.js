// The selected superstep, or all of them: its cycles, how evenly tiles are busy, what its exchange moves.

let explanationOpen = false; // stays as the reader left it while supersteps change

function drawSuperstep() {
  const panel = element("walk-superstep"), at = state.superstep, every = at < 0;
  const spans = every ? facts.spans : [facts.spans[at]];
  const add = name => spans.reduce((total, span) => total + span[name], 0);
  const [compute, exchange, sync] = [add("compute_cycles"), add("exchange_cycles"), add("sync_cycles")];
  const cycles = compute + exchange + sync;
  const words = superstepWords(at), content = [make("h3", {}, words[0].toUpperCase() + words.slice(1))];
  if (!every) {
    const [{ phase, op, times }] = spans;
    const serves = op ? `, operation ${op}` : "";
    content.push(make("p", { className: "note" }, `Phase ${phase}${serves}, executed ${thousands(times)} ` +
      `${times === 1 ? "time" : "times"} a ${facts.run_name}; cycles are of all executions together.`));
  }
  content.push(partsBar(compute, exchange, sync, cycles), factList(
    ["cycles", `${thousands(cycles)}, ${(1e6 * cycles / facts.clock_hz).toFixed(1)} µs, ` +
      `${share(cycles, facts.cycles)} of the ${facts.run_name}`],
    ["compute", `${thousands(compute)} (${share(compute, cycles)})`],
    ["exchange", `${thousands(exchange)} (${share(exchange, cycles)})`],
    ["sync", `${thousands(sync)} (${share(sync, cycles)})`],
  ));
  if (!every && columns.matched_superstep) content.push(inOther(at));
  const busy = busyNow(at);
  if (inTimestep(at)) content.push(make("h3", {}, `In timestep ${columns.window_timesteps[state.timestep]}`));
  content.push(balance(busy, inTimestep(at) ? maximum(busy) : compute, every));
  content.push(utilisation(at));
  if (!every) {
    content.push(make("details", { open: explanationOpen, ontoggle: event => { explanationOpen = event.target.open; } },
      make("summary", {}, "Why it takes these cycles, from its vertices on"),
      make("div", { className: "scroll" }, make("pre", { className: "walk-explained" }, facts.explained[at]))));
  }
  panel.replaceChildren(...content);
  drawBalance(busy);
}

/** How the tiles' work in this superstep differs in the other run. */
function inOther(at) {
  const change = sum(columns.busy_change.some(at)), own = sum(columns.busy.some(at));
  const words = columns.matched_superstep[at] < 0 ? "no superstep of this name"
    : `${change > 0 ? "+" : ""}${thousands(change)} busy cycles on all tiles together (${share(change, own)})`;
  return factList(["in run B", words]);
}

/** One bar, its parts as long as their cycles. */
function partsBar(compute, exchange, sync, total) {
  const bar = make("div", { className: "walk-parts", role: "img",
    "aria-label": `compute ${share(compute, total)}, exchange ${share(exchange, total)}, sync ${share(sync, total)}` });
  for (const [name, cycles] of Object.entries({ compute, exchange, sync })) {
    const piece = make("span", { title: `${name}: ${thousands(cycles)} cycles` });
    piece.style.flexGrow = total ? cycles / total : 0;
    piece.style.background = PARTS[name];
    bar.append(piece);
  }
  return bar;
}

/** How evenly the tiles are busy, and what it would save if they were. */
function balance(busy, compute, every) {
  const at = state.superstep, order = largest(busy, 5), most = order.length ? busy[order[0]] : 0;
  const mean = sum(busy) / facts.tiles, working = busy.filter(cycles => cycles > 0);
  const pairs = [["busiest", ...(order.length ? order.flatMap((tile, place) =>
    [place ? " · " : "", tileLink(tile), ` ${thousands(busy[tile])}`]) : ["no tile has work"])]];
  if (!every && facts.codelets[at]) pairs.push(["codelets", `${facts.codelets[at]} (on the busiest)`]);
  if (most) {
    const ofWorking = sum(working) / working.length;
    const saved = evenly => `${thousands(Math.max(0, compute - evenly))} cycles, ` +
      `${share(Math.max(0, compute - evenly), facts.cycles)} of the ${facts.run_name}`;
    pairs.push(["balance", `mean ${thousands(ofWorking)} of ${counted(working.length, "tile")} with work, longest ` +
      `${thousands(most)}: ${(ofWorking / most).toFixed(2)}`]);
    const all = working.length < facts.tiles ? `; over all ${thousands(facts.tiles)} tiles, ${saved(mean)}` : "";
    pairs.push(["if even", `perfect balance over these tiles would save at most ${saved(ofWorking)}${all}`]);
  }
  const caption = "Busy cycles of the tiles, busiest first; the line is the mean of those with work.";
  return make("div", {}, factList(...pairs),
    make("figure", {}, make("div", {}, make("canvas", { id: "walk-balance", className: "walk-canvas" })),
      make("figcaption", { className: "walk-caption" }, caption)));
}

/** The sorted curve: area below it, mean as a line. */
function drawBalance(busy) {
  const sorted = Float64Array.from(busy).sort().reverse(), colour = ink();
  const { context, width, height } = sized(element("walk-balance"), 120);
  const left = 70, foot = 16, wide = width - left - 6, high = height - foot - 8, most = sorted[0] || 1;
  context.fillStyle = "#0072B2";
  context.beginPath();
  context.moveTo(left, 8 + high);
  for (let x = 0; x <= wide; x++) {
    const value = sorted[Math.min(sorted.length - 1, Math.floor((x / wide) * sorted.length))];
    context.lineTo(left + x, 8 + high * (1 - value / most));
  }
  context.lineTo(left + wide, 8 + high);
  context.fill();
  const mean = sum(sorted) / Math.max(1, sorted.filter(cycles => cycles > 0).length), y = 8 + high * (1 - mean / most);
  context.strokeStyle = "#D55E00";
  context.setLineDash([5, 4]);
  context.lineWidth = 2;
  context.beginPath();
  context.moveTo(left, y);
  context.lineTo(left + wide, y);
  context.stroke();
  context.setLineDash([]);
  context.fillStyle = colour.soft;
  context.textAlign = "right";
  context.fillText(thousands(sorted[0]), left - 6, 14);
  context.fillText("0", left - 6, 8 + high);
  if (y > 24 && y < high) context.fillText(thousands(mean), left - 6, y + 4);
  context.fillText(`${thousands(sorted.length)} tiles`, left + wide, height - 3);
}

/** How far the machine's parts are used: issue, worker contexts, exchange. */
function utilisation(at) {
  const every = at < 0, busy = sum(row("busy", at)), bundles = every ? sum(columns.bundles) : columns.bundles[at];
  const flops = every ? sum(columns.flops) : columns.flops[at];
  const issued = `${thousands(bundles)} bundles in ${thousands(busy)} busy cycles: ${share(bundles, busy)}`;
  const pairs = [["issue", busy ? issued : "no work"]];
  if (flops && busy) {
    pairs.push(["arithmetic", `${thousands(flops)} flops, ${(flops / busy).toFixed(2)} per busy cycle`]);
  }
  const accessed = every ? sum(columns.accessed) : columns.accessed[at];
  if (accessed && busy) {
    const rate = (accessed / busy).toFixed(1);
    pairs.push(["memory", `about ${bytes(accessed)} read and written, ${rate} B per busy cycle`]);
  }
  if (measures.contexts && !every && busy) {
    const working = row("contexts", at).filter(contexts => contexts > 0);
    const mean = sum(working) / Math.max(1, working.length);
    pairs.push(["contexts", `${mean.toFixed(1)} of ${facts.worker_contexts} worker contexts have work, mean of the ` +
      "tiles with work"]);
  }
  const received = every || measures.received.bySuperstep ? sum(row("received", at)) : facts.spans[at].bytes_received;
  pairs.push(["exchange", received ? `${bytes(received)} received` : "nothing is moved"]);
  const span = every ? null : facts.spans[at];
  if (span && span.exchange_tile >= 0) {
    pairs.push(["waits for", tileLink(span.exchange_tile), ` ${bytes(span.exchange_tile_bytes)} on its wire and ` +
      `${thousands(span.exchange_tile_control_cycles)} cycles of control instructions, each time`]);
  }
  if (span && span.link_cycles) {
    pairs.push(["links", `${thousands(span.link_cycles)} of the exchange cycles go over links`]);
  }
  if (measures.exchange && (every || measures.exchange.bySuperstep)) {
    const own = row("exchange", at), [tile] = largest(own, 1);
    if (tile !== undefined) {
      pairs.push(["longest", tileLink(tile), ` ${thousands(own[tile])} exchange cycles of its own`]);
    }
  }
  return factList(...pairs);
}

function startSuperstep() {
  views.push(changed => {
    if (changed.has("superstep") || changed.has("timestep")) drawSuperstep();
  });
}
