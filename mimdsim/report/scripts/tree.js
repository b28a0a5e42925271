// The program as a tree: phases, and in each its supersteps with a bar of their cycles.

function drawTree() {
  const longest = Math.max(1, ...facts.spans.map(cyclesOf));
  const groups = phases().map(phase => {
    const chosen = facts.spans.map((span, at) => [span, at]).filter(([span]) => span.phase === phase);
    const total = chosen.reduce((cycles, [span]) => cycles + cyclesOf(span), 0);
    const group = make("details", { open: facts.spans.length <= 120 }, make("summary", {},
      `${phase || "no phase"}: ${thousands(total)} cycles, ${share(total, facts.cycles)}`));
    group.append(...chosen.map(([span, at]) => treeRow(span, at, longest)));
    return group;
  });
  element("walk-tree").replaceChildren(...groups);
}

function cyclesOf(span) {
  return span.compute_cycles + span.exchange_cycles + span.sync_cycles;
}

/** A superstep; loop control, which comes after the supersteps, cannot be selected. */
function treeRow(span, at, longest) {
  const bar = make("span", { className: "walk-tree-bar" });
  for (const name of ["compute", "exchange", "sync"]) {
    const piece = make("i");
    piece.style.width = `${(100 * span[`${name}_cycles`]) / longest}%`;
    piece.style.background = PARTS[name];
    bar.append(piece);
  }
  const line = make("button", { type: "button", className: "walk-tree-row", data: { superstep: at },
    disabled: at >= facts.steps }, make("span", { className: "walk-tree-name" }, span.name), bar,
  make("span", { className: "walk-tree-cycles" }, thousands(cyclesOf(span))));
  line.addEventListener("click", () => select({ superstep: at, timestep: -1 }));
  return line;
}

function startTree() {
  drawTree();
  views.push(changed => {
    if (!changed.has("superstep")) return;
    const holder = element("walk-tree");
    holder.querySelectorAll("[aria-current]").forEach(one => one.removeAttribute("aria-current"));
    const line = holder.querySelector(`[data-superstep="${state.superstep}"]`);
    if (!line) return;
    line.setAttribute("aria-current", "true");
    line.parentElement.open = true;
    // within the tree alone: the page itself stays where it is
    const above = line.offsetTop - holder.offsetTop;
    if (above < holder.scrollTop || above > holder.scrollTop + holder.clientHeight - 30) {
      holder.scrollTop = above - holder.clientHeight / 2;
    }
  });
}
