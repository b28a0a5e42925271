// Two runs of the page of all runs, side by side.
"use strict";
(() => {
  const runs = JSON.parse(document.getElementById("runs-data").textContent);
  const find = id => document.getElementById(id), chosen = [find("run-a"), find("run-b")];
  if (runs.length < 2) return;
  chosen.forEach((select, at) => {
    select.append(...runs.map((run, number) => new Option(run.name, number)));
    select.value = String(at);
    select.addEventListener("change", draw);
  });
  function draw() {
    const [a, b] = chosen.map(select => runs[Number(select.value)]), timed = a.comparable && b.comparable;
    const body = find("data-two").tBodies[0];
    body.replaceChildren();
    for (const name of new Set([...Object.keys(a.values), ...Object.keys(b.values)])) {
      const [one, other] = [a, b].map(run => run.values[name]), line = body.insertRow();
      const ratio = one && other && one[0] && (timed || !one[2]) ? (other[0] / one[0]).toPrecision(3) : "–";
      [name, one ? one[1] : "–", other ? other[1] : "–", ratio].forEach((text, at) => {
        const cell = line.insertCell();
        cell.textContent = text;
        if (at) cell.className = "number";
      });
    }
    find("compare-note").textContent = timed ? "Of numbers with an interval, the ratio is that of the middle values."
      : "One of the two does not fit its memory, or its costs are unknown, so their times are not compared.";
  }
  find("compare").hidden = false;
  draw();
})();
