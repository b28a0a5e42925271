// The selected tile: its supersteps, what lies in its memory, with whom it exchanges.
const TOP = 8;

function drawTile() {
  const panel = element("walk-tile"), tile = state.tile;
  if (tile < 0) return panel.replaceChildren(...noTile());
  const busy = row("busy", -1), rank = busy.filter(cycles => cycles > busy[tile]).length + 1;
  const received = row("received", -1), sent = row("sent", -1), peak = peakOf(tile);
  panel.replaceChildren(
    make("h3", {}, tileWords(tile)[0].toUpperCase() + tileWords(tile).slice(1)),
    factList(
      ["busy", `${thousands(busy[tile])} cycles, ${share(busy[tile], facts.cycles)} of the ${facts.run_name}; rank ` +
        `${thousands(rank)} of ${thousands(facts.tiles)}`],
      ["memory", `${bytes(memory[peak * facts.tiles + tile])} of ${bytes(facts.limit_bytes)} at its peak, in `,
        superstepLink(peak)],
      ...(inTimestep(state.superstep) ? [[`timestep ${columns.window_timesteps[state.timestep]}`,
        `${thousands(busyNow(state.superstep)[tile])} busy cycles in ${facts.supersteps[state.superstep]}`]] : []),
      ["receives", `${bytes(received[tile])}, sends ${bytes(sent[tile])}`],
    ),
    tileSupersteps(tile),
    partners(tile),
    lying(tile, peak),
  );
}

function noTile() {
  const busiest = largest(row("busy", -1), 5), peaks = row("memory", -1), fullest = largest(peaks, 5);
  const listed = (words, tiles, tell) => factList([words, ...tiles.flatMap((tile, at) =>
    [at ? " · " : "", tileLink(tile), ` ${tell(tile)}`])]);
  return [make("h3", {}, "No tile selected"),
    make("p", { className: "note" }, "Click a tile on the floor plan, or one of these:"),
    listed("busiest", busiest, tile => `${thousands(row("busy", -1)[tile])} cycles`),
    listed("fullest", fullest, tile => bytes(peaks[tile])),
    listed("receive most", largest(row("received", -1), 5), tile => bytes(row("received", -1)[tile]))];
}

/** Supersteps in which the tile has work, with how the other tiles fare. slack: what the tile waits for the longest. */
function tileSupersteps(tile) {
  const total = row("busy", -1)[tile], rows = [];
  for (let superstep = 0; superstep < facts.steps; superstep++) {
    const busy = columns.busy.some(superstep), own = columns.busy.at(superstep, tile);
    if (!own) continue;
    const most = maximum(busy), others = facts.tiles > 1 ? (sum(busy) - own) / (facts.tiles - 1) : 0;
    rows.push([superstepLink(superstep), count(own), percent(own, total), count(most),
      count(Math.round(others)), count(most - own)]);
  }
  rows.sort((a, b) => b[1].value - a[1].value);
  return tableOf("walk-tile-supersteps", `Its ${counted(rows.length, "superstep")}, longest first`,
    ["superstep", "busy cycles", "share", "busiest tile", "others' mean", "slack"], rows,
    "Cycles of all executions together. Slack: busy cycles of the busiest tile in the superstep minus its own.");
}

function partners(tile) {
  const rows = [];
  const width = columns.senders.length / facts.tiles;
  for (let at = 0; at < width; at++) {
    const place = tile * width + at, from = columns.senders[place], to = columns.receivers[place];
    if (from < 0 && to < 0) break;
    rows.push([from < 0 ? "" : tileLink(from), from < 0 ? "" : size(columns.sender_bytes[place]),
      to < 0 ? "" : tileLink(to), to < 0 ? "" : size(columns.receiver_bytes[place])]);
  }
  if (!rows.length) return make("p", { className: "note" }, "It exchanges nothing with tiles of its chip.");
  const note = facts.chips > 1 ? "Tiles of its own chip; what goes over links between chips is not told by tile." : "";
  const headers = ["sends it", "bytes", "it sends to", "bytes sent"];
  return tableOf("walk-partners", "Whom it exchanges most with", headers, rows, note);
}

/** What lies on the tile at its peak, or in the selected superstep. */
function lying(tile, peak) {
  const chosen = state.lying === "superstep" && state.superstep >= 0, superstep = chosen ? state.superstep : peak;
  const found = onTile(tile, superstep), total = memory[superstep * facts.tiles + tile];
  const when = chosen ? "in the selected superstep" : "at its peak";
  const table = tableOf("walk-lying", `In its memory ${when}, ${facts.supersteps[superstep]}: ${bytes(total)}`,
    ["variable", "category", "bytes", "share"],
    found.map(([name, category, held]) => [name || "–", category, size(held), percent(held, total)]));
  const choice = make("div", { className: "walk-choice" });
  for (const [name, words] of [["peak", "at its peak"], ["superstep", "in the selected superstep"]]) {
    const button = make("button", { type: "button", disabled: name === "superstep" && state.superstep < 0 }, words);
    button.setAttribute("aria-pressed", String((name === "superstep") === chosen));
    button.addEventListener("click", () => select({ lying: name }));
    choice.append(button);
  }
  table.insertBefore(choice, table.children[1]);
  return table;
}

function startTile() {
  views.push(changed => {
    if (changed.has("tile") || changed.has("lying") || (changed.has("superstep") && state.lying === "superstep") ||
      ((changed.has("superstep") || changed.has("timestep")) && state.tile >= 0)) {
      drawTile();
    }
  });
}
