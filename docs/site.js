// On a narrow screen wide tables and figures scroll; the keyboard must reach them too.
document.addEventListener("DOMContentLoaded", () => {
  for (const wide of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset p:has(> svg.figure)"))
    wide.tabIndex = 0;
});

// The form of docs/how-to/sizing.md: the same law as benchmarks/scale/sizing.py, with the costs in the page.
const BUSY = 0.7, ROUND_TRIP_S = 0.002, TURN_S = 0.02, DAY_S = 86400;
const READ_AT_ONCE = 20000, LISTED = 512, AHEAD = 10000000;

// How many cells of a bin have events when it closes, of one stream.
const cellsOfBin = (load) => load.keys * -Math.expm1((-load.eventsPerS * load.binS) / load.keys);

// What is done in a second, as `work` of benchmarks/scale/model.py counts it.
function second(load, workers) {
  const together = Math.max(1, Math.min(READ_AT_ONCE, (load.eventsPerS / workers) * TURN_S));
  const cells = (load.keys / together) * -Math.expm1(-together / load.keys), closings = load.streams / load.binS;
  const written = load.eventsPerS * load.streams * cells, ahead = load.keys * load.epochBins <= AHEAD;
  return {
    worker_second: workers,
    worker_second_of_stream: workers * load.streams,
    instant: workers / load.binS,
    event: load.eventsPerS,
    event_of_stream: load.eventsPerS * load.streams,
    cell_of_stream: written,
    cell_passed: cellsOfBin(load) <= LISTED ? (written * cellsOfBin(load)) / 2 : 0,
    closing: closings,
    closing_of_key: ahead ? 0 : closings * load.keys,
    closing_of_key_ahead: ahead ? closings * load.keys : 0,
  };
}

function projected({ cpu_s: cpu, redis_cpu_s: redis }, load, workers, shards) {
  const done = second(load, workers);
  const closings = ["closing", "closing_of_key", "closing_of_key_ahead"];
  const spent = (costs, names) => names.reduce((sum, name) => sum + costs[name] * done[name], 0);
  const busy = spent(cpu, Object.keys(done)) / workers, redisBusy = spent(redis, Object.keys(done)) / shards;
  const turnS = TURN_S / (1 - busy), storedS = (spent(redis, closings) * load.binS) / load.streams;
  const queueS = (storedS * redisBusy) / (2 * (1 - redisBusy));
  const atOnceS = (spent(cpu, closings) * load.binS + storedS * load.streams) / workers;
  return { busy, redisBusy, lagS: 1.5 * turnS, closingS: ROUND_TRIP_S + turnS + cpu.instant + queueS + atOnceS };
}

function sized(costs, load) {
  let workers = 1, shards = 1, found = projected(costs, load, workers, shards);
  while (!(found.busy <= BUSY && found.redisBusy <= BUSY)) {
    if (found.busy > BUSY) workers = Math.max(workers + 1, Math.floor(workers * Math.min(found.busy / BUSY, 2)));
    if (found.redisBusy > BUSY) shards += 1;
    if (workers > 100000 || shards > load.streams) return null; // a stream lives in one shard
    found = projected(costs, load, workers, shards);
  }
  const rows = load.streams * ((load.days * DAY_S) / load.binS + load.epochBins); // an epoch leaves whole
  const draws = load.keys * load.epochBins <= AHEAD ? load.streams * load.keys * load.epochBins : 0;
  const held = { process: 1, stream: load.streams, key_of_stream: load.streams * load.keys, row: rows };
  Object.assign(held, { key_of_row: rows * load.keys, noise_ahead: draws });
  held.cell_open = cellsOfBin(load) > LISTED ? load.streams * cellsOfBin(load) : 0;
  const memory = (costs) => Object.entries(costs).reduce((sum, [name, cost]) => sum + cost * held[name], 0);
  const again = (shards - 1) * costs.redis_mb.process + draws * costs.redis_mb.noise_ahead; // of the next epoch
  const redisMb = memory(costs.redis_mb) + again;
  return { workers, shards, ...found, workerMb: memory(costs.worker_mb), redisMb };
}

const FIELDS = [ // of a load: name, label, first value
  ["eventsPerS", "events a second", 10000],
  ["streams", "streams", 20],
  ["keys", "keys of each", 50],
  ["binS", "seconds of a bin", 60],
  ["epochBins", "bins of an epoch", 10080],
  ["days", "days that releases are kept", 365],
];

function inWords(size) {
  if (!size) return "No number of workers is enough for this load: make bins longer, or streams or keys fewer.";
  const memory = (mb) => (mb < 1000 ? `${Math.ceil(mb)} MB` : `${(mb / 1000).toFixed(1)} GB`);
  const seconds = (s) => (s < 1 ? `${Math.ceil(s * 1000)} ms` : `${s.toFixed(1)} s`);
  const many = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
  return (
    `${many(size.workers, "worker")} of ${memory(size.workerMb)}, each ${Math.round(size.busy * 100)} % of one core. ` +
    `Redis: ${many(size.shards, "shard")}, ${memory(size.redisMb)} together, each ${Math.round(size.redisBusy * 100)} % of one core. ` +
    `An event is counted after ${seconds(size.lagS)}; all streams are released ${seconds(size.closingS)} after a bin may close.`
  );
}

function sizingForm(place) {
  const costs = JSON.parse(place.dataset.costs);
  const form = document.createElement("form"), output = document.createElement("output"), load = {};
  const show = () => {
    const known = Object.values(load).every((value) => value > 0);
    output.value = known ? inWords(sized(costs, load)) : "Every field needs a number above 0.";
  };
  for (const [name, label, value] of FIELDS) {
    const input = Object.assign(document.createElement("input"), { type: "number", min: 0, step: "any", value });
    const field = document.createElement("label");
    field.append(label, input);
    form.append(field);
    load[name] = value;
    input.addEventListener("input", () => ((load[name] = Number(input.value)), show()));
  }
  form.append(output);
  form.addEventListener("submit", (event) => event.preventDefault());
  place.replaceChildren(form);
  show();
}

document.addEventListener("DOMContentLoaded", () => document.querySelectorAll("div.sizing").forEach(sizingForm));
