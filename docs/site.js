// On a narrow screen wide tables and figures scroll; the keyboard must reach them too.
document.addEventListener("DOMContentLoaded", () => {
  for (const wide of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset p:has(> svg.figure)"))
    wide.tabIndex = 0;
});

// The form of docs/how-to/sizing.md: the same law as benchmarks/scale/sizing.py, with the costs in the page.
const BUSY = 0.7, TURN_S = 0.02, DAY_S = 86400;
const READ_EVERY_S = 0.05, READ_S_PER_STREAM = 0.005, READ_TIMEOUT_S = 0.1;
const ROUNDS_TO_CUT = 3;
const RECORDS_OF_PIECE = 40000, CELLS_OF_CALL = 5000, LISTED = 512, AHEAD = 10000000;
const THREADS = 4, NUMBERS_AT_ONCE = 1000000;

const distinct = (keys, events) => keys * -Math.expm1(-events / keys);
const readEveryS = (load) => Math.max(READ_EVERY_S, READ_S_PER_STREAM * load.streams);
const spent = (costs, done) => Object.entries(costs).reduce((sum, [name, cost]) => sum + cost * done[name], 0);

function passed(keys, cells) {
  if (keys > LISTED) cells = Math.min(cells, -keys * Math.log1p(-LISTED / keys));
  return (cells * keys) / 2 - (distinct(keys, 2 * cells) * keys) / 4;
}

// How often one worker polls in a second, as `polls_of` of benchmarks/scale/model.py counts it.
function polls(load, perS, own) {
  const everyS = readEveryS(load), most = 1 + Math.floor(READ_TIMEOUT_S / everyS + 1e-9);
  let periods = 1;
  for (let multiple = 2; multiple <= most; multiple += 1) periods += Math.exp(-perS * everyS * multiple);
  return 1 / (everyS * periods) + Math.min(ROUNDS_TO_CUT / load.binS, perS);
}

// What is done in a second, as `work` of benchmarks/scale/model.py counts it.
function second(load, workers, shards, partitions) {
  const { eventsPerS, streams, keys, binS } = load, perS = eventsPerS / workers;
  const own = Math.max(partitions / workers, 1);
  const most = Math.max(own / readEveryS(load) + (ROUNDS_TO_CUT * own) / binS, perS / RECORDS_OF_PIECE);
  const pieces = Math.min(most, perS) * workers, together = eventsPerS / pieces;
  const poll = polls(load, perS, own) * workers;
  let slices = pieces, calls = Math.min(poll, pieces);
  if (keys > CELLS_OF_CALL) {
    slices *= Math.ceil(together / CELLS_OF_CALL);
    calls *= Math.ceil(eventsPerS / calls / CELLS_OF_CALL);
  }
  const cells = slices * distinct(keys, eventsPerS / slices), bins = 1 / binS;
  const closings = streams / binS;
  return {
    second: shards,
    worker_second: workers,
    poll,
    event: eventsPerS,
    event_with_key: keys > 1 ? eventsPerS : 0,
    piece: pieces,
    piece_with_key: keys > 1 ? pieces : 0,
    call: calls * streams,
    slice: slices * streams,
    cell: cells * streams,
    cell_new: bins * distinct(keys, eventsPerS / bins) * streams,
    cell_passed: passed(keys, cells / bins) * bins * streams,
    closing: closings,
    closing_of_worker: closings * workers,
    cut: closings * partitions,
    closing_of_key: closings * keys,
  };
}

function projected({ cpu_s: cpu, redis_cpu_s: redis }, load, workers, shards) {
  const partitions = Math.max(load.partitions, workers), done = second(load, workers, shards, partitions);
  const busy = spent(cpu, done) / workers, redisBusy = spent(redis, done) / shards, turnS = TURN_S / (1 - busy);
  const lagS = 1.5 * Math.max(readEveryS(load), turnS);
  return { busy, redisBusy, lagS };
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
  const isAhead = load.keys * load.epochBins <= AHEAD; // a stream without keys stores the noise of nodes, too
  const numbers = isAhead ? Math.max(load.keys, 2) * load.epochBins : 0, draws = load.streams * numbers;
  const held = { process: 1, worker: workers, stream: load.streams, stream_with_rows: load.streams };
  held.partition_of_stream = load.streams * Math.max(load.partitions, workers);
  const ofBin = distinct(load.keys, load.eventsPerS * load.binS);
  held.cell_open = ofBin > LISTED ? load.streams * ofBin : 0;
  Object.assign(held, { key_of_stream: load.streams * load.keys, noise_ahead: draws });
  held.drawing = Math.min(load.streams, THREADS) * Math.min(numbers, NUMBERS_AT_ONCE);
  Object.assign(held, { row: rows, key_of_row: rows * load.keys });
  const again = (shards - 1) * costs.redis_mb.process + draws * costs.redis_mb.noise_ahead; // of the next epoch
  const workerMb = spent(costs.worker_mb, held), redisMb = spent(costs.redis_mb, held) + again;
  return { workers, shards, ...found, workerMb, redisMb };
}

const FIELDS = [ // of a load: name, label, first value
  ["eventsPerS", "events a second", 10000],
  ["streams", "streams", 20],
  ["keys", "keys of each", 50],
  ["binS", "seconds of a bin", 60],
  ["epochBins", "bins of an epoch", 10080],
  ["days", "days that releases are kept", 365],
  ["partitions", "partitions of the topic", 12],
];

function inWords(size) {
  if (!size) return "No number of workers is enough for this load: make bins longer, or streams or keys fewer.";
  const memory = (mb) => (mb < 1000 ? `${Math.ceil(mb)} MB` : `${(mb / 1000).toFixed(1)} GB`);
  const seconds = (s) => (s < 1 ? `${Math.ceil(s * 1000)} ms` : `${s.toFixed(1)} s`);
  const many = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
  return (
    `${many(size.workers, "worker")} of ${memory(size.workerMb)}, each ${Math.round(size.busy * 100)} % of one core. ` +
    `Redis: ${many(size.shards, "shard")}, ${memory(size.redisMb)} together, each ${Math.round(size.redisBusy * 100)} % of one core. ` +
    `An event is counted after at most ${seconds(size.lagS)} in the mean.`
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
