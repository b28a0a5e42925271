// Charts of the whole run in the sections that tell of it: memory over the program, learning, spikes. They do not
// depend on the selection.
const LITTLE = 0.1; // of the limit: where nothing is fuller, its line would flatten the rest, and it is only named

/** A chart with a title in the holder of a section. */
function chartOf(section, title, x, series, options) {
  const holder = element(`walk-of-${section}`), id = `${holder.id}-${holder.childElementCount}`;
  holder.append(make("figure", {}, make("figcaption", {}, title), make("div", { id })));
  curve(id, x, series, { height: 190, shown: value => (value === null ? "–" : some.format(value)), ...options });
}

/** A level along a chart, dashed. */
function level(label, colour, value, x) {
  return { label, colour, dash: [6, 4], values: x.map(() => value) };
}

function drawLiveness() {
  const x = upTo(facts.steps), rows = x.map(memoryRow), limit = facts.limit_bytes;
  const series = [{ label: "fullest tile", colour: NAMES[0], fill: NAMES[0], values: rows.map(maximum) },
    level("always live, at most on a tile", ink().ink, facts.always_live_bytes, x)];
  const little = fullest.bytes < LITTLE * limit;
  if (!little) series.push(level("limit", NAMES[5], limit, x));
  const far = little ? `; limit: ${bytes(limit)}` : "";
  const most = `${bytes(fullest.bytes)} on tile ${fullest.tile} in ${facts.supersteps[fullest.superstep]}`;
  const phase = at => (at < facts.steps ? `${facts.spans[at].phase}, ${sayStep(at)}` : "–");
  const starts = x.filter(at => at && facts.spans[at].phase !== facts.spans[at - 1].phase);
  const options = { xLabel: "superstep", shown: bytes, stepped: true, sayX: phase,
    marks: starts.map(at => ({ at, colour: ink().soft })) };
  chartOf("liveness", `Memory in use on the fullest tile, superstep by superstep: at most ${most}${far}`, x, series,
    options);
  chartOf("liveness", "Memory in use on all tiles together", x,
    [{ label: "all tiles", colour: NAMES[0], fill: NAMES[0], values: rows.map(sum) }], options);
}

/** Losses with their running mean over a twentieth of the run, and the mean of each epoch at its end. */
function drawLoss({ loss, loss_by_epoch, batch }) {
  const x = upTo(loss.length).map(at => at + 1), span = Math.max(1, Math.round(loss.length / 20));
  const series = [{ label: "loss", colour: NAMES[4], values: loss }];
  if (span > 1 && loss.every(value => value !== null)) {
    let total = 0;
    const means = loss.map((value, at) => {
      total += value - (at < span ? 0 : loss[at - span]);
      return at + 1 < span ? null : total / span;
    });
    series.push({ label: `mean of the last ${thousands(span)}`, colour: NAMES[0], values: means });
  }
  if (loss_by_epoch.length > 1) {
    const values = loss.map(() => null), long = Math.floor(loss.length / loss_by_epoch.length);
    loss_by_epoch.forEach((mean, epoch) => { values[(epoch + 1) * long - 1] = mean; });
    series.push({ label: "mean of an epoch", colour: NAMES[2], values, joined: true });
  }
  chartOf("training", `Loss over ${counted(loss.length, "training step")} of batch ${thousands(batch)}`, x, series,
    { xLabel: "training step" });
}

function drawAccuracy({ accuracy, best_epoch, train_accuracy, test_samples }) {
  const x = upTo(accuracy.test.length).map(at => at + 1), percent = values => values.map(value => 100 * value);
  const colours = { test: NAMES[2], "as trained": NAMES[4], validation: NAMES[1] };
  const series = Object.entries(accuracy).filter(([, values]) => values.length === x.length)
    .map(([label, values]) => ({ label, colour: colours[label], values: percent(values), joined: true }));
  if (train_accuracy !== null) series.push(level("training, at the end", NAMES[1], 100 * train_accuracy, x));
  const kept = best_epoch === null ? "" : `; the weights of epoch ${best_epoch + 1} were kept`;
  chartOf("training", `Accuracy on ${counted(test_samples, "test sample")}, per cent correct${kept}`, x, series,
    { xLabel: "epoch", marks: best_epoch === null ? [] : [{ at: best_epoch + 1 }] });
}

function drawSpikes(layers) {
  for (const { layer, neurons, capacity, sends, spikes, listed } of layers) {
    const x = upTo(spikes.length), mean = sum(spikes) / spikes.length;
    const sent = sends === "numbers" ? "numbers that are not zero" : "spikes", lists = sends === "lists";
    const series = [{ label: sent, colour: NAMES[0], values: spikes }];
    if (lists) series.unshift({ label: "listed (spikes and gradient entries)", colour: NAMES[1], values: listed });
    const near = capacity <= 4 * Math.max(maximum(listed), maximum(spikes));
    if (lists && near) series.push(level("capacity", NAMES[5], capacity, x));
    const room = lists ? `, capacity ${thousands(capacity)}${near ? "" : " (above the chart)"}` : "";
    chartOf("spikes", `${layer}: ${counted(neurons, "neuron")}, mean ${some.format(mean)} ${sent} per timestep${room}`,
      x, series, { xLabel: "timestep" });
  }
}

function drawRun() {
  for (const holder of document.querySelectorAll(".walk-charts")) holder.replaceChildren();
  drawLiveness();
  const { training, activity } = facts;
  if (training && training.loss.length) {
    drawLoss(training);
    if (training.accuracy.test.length) drawAccuracy(training);
  }
  drawSpikes(activity.filter(one => one.spikes.length));
}
