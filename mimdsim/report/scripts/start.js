// Unpack the data, then start every view.

async function start() {
  const begun = performance.now(), message = element("walk-wait");
  if (!("DecompressionStream" in window)) {
    message.textContent = "This browser is too old to unpack the columns of tiles: it lacks DecompressionStream.";
    return;
  }
  const data = element("walk-data");
  await unpack(data.textContent.trim());
  data.remove(); // its text is needed no more
  defineMeasures();
  element("walk-root").hidden = false;
  message.hidden = true;
  if (facts.left_out.length) {
    const words = element("walk-left-out");
    const named = facts.left_out.join(", ");
    words.textContent = `Left out of this page, as there are many tiles and supersteps: ${named}. ` +
      "Their sums are here; all of them are in detail.npz beside the profile.";
    words.hidden = false;
  }
  for (const begin of [startControls, startFloor, startTimeline, startPicture, startTile, startSuperstep, startCurves,
    startMemory, startTraffic, startTree]) begin();
  const asked = readAddress();
  waiting.clear();
  redraw();
  if (asked) showSection("walk");
  document.documentElement.dataset.walk = String(Math.round(performance.now() - begun));
  let width = document.documentElement.clientWidth, later = 0;
  window.addEventListener("resize", () => {
    if (document.documentElement.clientWidth === width) return; // a phone's bars come and go as it scrolls
    width = document.documentElement.clientWidth;
    clearTimeout(later);
    later = setTimeout(redraw, 120);
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  window.addEventListener("beforeprint", () => { printing = true; redraw(); });
  window.addEventListener("afterprint", () => { printing = false; redraw(); });
}

start().catch(problem => {
  element("walk-wait").hidden = false;
  element("walk-wait").textContent = `The columns of single tiles cannot be shown: ${problem.message}`;
  throw problem;
});
