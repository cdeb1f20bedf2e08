"use strict";

const SILENT_MS = 6000; // The server sends something every two seconds.
const AGAIN_MS = 1000;
const DRAW_MS = 900;
const SHORTEST_S = 20;
const MOST_POINTS = 1200;
const GAP_S = 3;
const MOST_AWAY = 4;
const HEIGHT = 150, LEFT = 46, RIGHT = 8, TOP = 14, BOTTOM = 20;

const UNITS = { write: "events", fill: "events", read: "queries" };
const NAMES = { write: "writers", fill: "prefill", read: "readers" };

const rate = (role) => (point) => point[role]?.rate;
const time = (role, key) => (point) => point[role]?.[key];
const CHARTS = [
  { id: "events", title: "Events per second", lines: [["inserted", rate("write")], ["prefilled", rate("fill")]] },
  { id: "queries", title: "Queries per second", lines: [["answered", rate("read")]] },
  { id: "rows", title: "Rows of answers per second", lines: [["rows", time("read", "rows")]] },
  { id: "bytes", title: "Answers, MB per second", lines: [["MB", (point) => point.read?.bytes == null ? null : point.read.bytes / 1e6]] },
  { id: "write-times", title: "Times of inserts, ms", limited: "write", lines: [["p50", time("write", "p50")], ["p99", time("write", "p99")]] },
  { id: "read-times", title: "Times of queries, ms", limited: "read", lines: [["p50", time("read", "p50")], ["p99", time("read", "p99")]] },
  { id: "backlog", title: "Backlog", lines: [["events", time("write", "backlog")], ["queries", time("read", "backlog")]] },
  { id: "cpus", title: "CPUs that the database uses", lines: [["in use", (point) => point.cpus]] },
];
const COLOURS = ["first", "second", "third"];

const state = { points: [], runs: [], marks: [], jobs: [], limits: [], since: 0 };
const token = new URLSearchParams(location.search).get("token") ?? "";
const find = (id) => document.getElementById(id);

// --- the connection ---------------------------------------------------------------------------------

let source = null, heardAt = Date.now(), begunAt = 0, again = null;

function connect() {
  again = null;
  begunAt = Date.now();
  source = new EventSource("/events?token=" + encodeURIComponent(token));
  source.onmessage = (event) => { hear(); take(JSON.parse(event.data)); };
  source.addEventListener("beat", hear);
  source.onerror = lose;
}

function hear() {
  heardAt = Date.now();
  if (state.ended == null) tell("live", false);
}

function lose() {
  source.close();
  if (state.ended != null || again !== null) return;
  const since = new Date(heardAt).toLocaleTimeString();
  tell(`no connection since ${since}: trying again. If the command is over, so is this page.`, true);
  again = setTimeout(connect, AGAIN_MS);
}

function tell(text, lost) {
  set(find("connection"), text);
  find("connection").classList.toggle("lost", lost);
}

// A connection may break silently, as when the laptop sleeps.
setInterval(() => {
  if (state.ended == null && again === null && Date.now() - Math.max(heardAt, begunAt) > SILENT_MS) lose();
}, 1000);

function take(changes) {
  const points = changes.whole ? changes.points : state.points.concat(changes.points);
  Object.assign(state, changes, { points: points.slice(-MOST_POINTS) });
  state.since = state.run?.since ?? state.since; // Between runs the one before stays.
  if (state.ended != null) {
    source.close();
    tell(`the command has ended: ${state.ended}`, false);
  }
  show();
}

// --- texts -------------------------------------------------------------------------------------------

function set(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function make(name, attributes = {}, text = null, space = null) {
  const element = space ? document.createElementNS(space, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== null) element.textContent = text;
  return element;
}

function write(value) {
  if (value == null) return "–";
  if (value === 0) return "0";
  if (Math.abs(value) < 0.1) return value.toLocaleString("en", { maximumSignificantDigits: 2 });
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return value.toLocaleString("en", { maximumFractionDigits: digits });
}

function writeBytes(value) {
  const power = Math.min(3, Math.max(0, Math.floor(Math.log10(Math.max(1, value)) / 3)));
  return `${write(value / 1000 ** power)} ${["B", "kB", "MB", "GB"][power]}`;
}

const whole = (value) => value.toLocaleString("en");
const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString("en-GB");

function show() {
  const title = `${state.command}${state.target ? ` · ${state.target}` : ""}`;
  set(find("title"), title);
  document.title = `${state.ended == null ? "" : "ended: "}${title}`;
  const run = state.run;
  set(find("label"), run ? run.label : "");
  set(find("phase"), run ? run.phase : state.ended == null ? "between runs" : "");
  for (const id of ["label", "phase", "words"]) find(id).hidden = state.ended != null;
  find("share").hidden = run?.share == null;
  if (run?.share != null) find("share").value = run.share;
  set(find("words"), (run?.words ?? []).join(" · "));
  set(find("quiet"), (run?.quiet ?? []).join(" "));
  showTiles(run);
  showLists();
  draw();
}

function listTiles(run) {
  const tiles = [];
  for (const group of run.groups) {
    const unit = UNITS[group.role], suffix = run.groups.length > 1 ? `, ${NAMES[group.role]}` : "";
    const done = whole(group.done) + (group.total ? ` of ${whole(group.total)}` : "");
    tiles.push([`${group.role}-rate`, `${unit} per second${suffix}`, write(group.rate_per_s), `${done} ${unit}`]);
    if (group.recent_p99_ms != null || group.p99_ms != null) {
      const kind = group.is_open ? "response time" : "service time";
      const more = `p50 ${write(group.recent_p50_ms)} ms · p99 of all ${write(group.p99_ms)} ms`;
      tiles.push([`${group.role}-p99`, `p99 ${kind}${suffix}, ms`, write(group.recent_p99_ms), more]);
    }
    if (group.rows_per_s != null) {
      tiles.push([`${group.role}-rows`, `rows per second${suffix}`, write(group.rows_per_s), `${writeBytes(group.bytes_per_s)} per second`]);
    }
    if (group.backlog != null) tiles.push([`${group.role}-backlog`, `backlog${suffix}`, whole(group.backlog), `${unit} that are due`]);
    const failures = group.role === "read" ? ` · ${whole(group.failed)} failed` : "";
    tiles.push([`${group.role}-errors`, `errors${suffix}`, whole(group.retries + group.failed), `${whole(group.retries)} tried again${failures}`]);
  }
  const database = run.database;
  if (database) {
    const share = database.cpus ? `of ${write(database.cpus)}: ${Math.round(100 * database.cpus_used / database.cpus)} %` : "";
    tiles.push(["cpus", "CPUs of the database", write(database.cpus_used), share]);
  }
  return tiles;
}

function showTiles(run) {
  const list = find("tiles"), tiles = run?.groups.length ? listTiles(run) : [];
  list.classList.toggle("old", !tiles.length); // The tiles of the run before stay until there are new ones.
  if (!tiles.length) return;
  const names = tiles.map(([id]) => id).join();
  if (list.dataset.names !== names) {
    list.dataset.names = names;
    list.replaceChildren(...tiles.map(([id]) => {
      const tile = make("div", { id: `tile-${id}` });
      tile.append(make("dt"), make("dd", { class: "value" }), make("dd", { class: "more" }));
      return tile;
    }));
  }
  tiles.forEach(([, ...texts], place) => texts.forEach((text, part) => set(list.children[place].children[part], text)));
}

function showLists() {
  fill("runs", state.runs.slice().reverse(), (run) => [run.at, `${run.label}: ${run.outcome}`, ""]);
  fill("marks", state.marks, (mark) => {
    const outcome = mark.took_s == null ? "under way" : `${mark.ok ? "done" : "failed"} after ${write(mark.took_s)} s`;
    return [mark.at, `${mark.action}: ${outcome}${mark.said ? `: ${mark.said}` : ""}`, mark.ok ? "" : "failed", mark.number];
  });
  fill("jobs", state.jobs, (job) => {
    const words = [job.state === "left" ? "" : job.state, job.said].filter(Boolean).join(": ");
    return [null, words ? `${job.name} · ${words}` : job.name, job.state];
  });
  find("runs-section").hidden = !state.runs.length;
  find("marks-section").hidden = !state.marks.length;
  find("campaign").hidden = !state.jobs.length;
  const count = (kind) => state.jobs.filter((job) => job.state === kind).length;
  const failed = count("failed");
  set(find("jobs-said"), `${count("done")} of ${state.jobs.length} jobs done${failed ? `, ${failed} failed` : ""}${state.jobs_left && state.ended == null ? `; ${state.jobs_left}` : ""}`);
}

function fill(id, items, describe) {
  const list = find(id), entries = items.map(describe), text = JSON.stringify(entries);
  if (list.dataset.text === text) return;
  list.dataset.text = text;
  list.replaceChildren(...entries.map(([at, words, kind, number]) => {
    const item = make("li", kind ? { class: kind } : {});
    if (number != null) item.value = number;
    if (at !== null) item.append(make("time", {}, clock(at)));
    item.append(words);
    return item;
  }));
}

// --- charts ------------------------------------------------------------------------------------------

const SVG = "http://www.w3.org/2000/svg";
let drawnAt = 0, drawing = null, pointer = null;

function draw() {
  if (drawing !== null || document.hidden) return;
  const wait = state.ended == null ? Math.max(0, drawnAt + DRAW_MS - Date.now()) : 0;
  drawing = setTimeout(() => {
    drawing = null;
    drawnAt = Date.now();
    CHARTS.forEach(drawChart);
  }, wait);
}

function findChart(chart) {
  let figure = find(`chart-${chart.id}`);
  if (figure) return figure;
  figure = make("figure", { id: `chart-${chart.id}` });
  figure.append(make("figcaption"), make("svg", { role: "img" }, null, SVG));
  const later = CHARTS.slice(CHARTS.indexOf(chart) + 1).map(({ id }) => find(`chart-${id}`)).find(Boolean);
  find("charts").insertBefore(figure, later ?? null);
  figure.addEventListener("pointermove", (event) => movePointer(event.clientX - figure.getBoundingClientRect().left));
  figure.addEventListener("pointerleave", () => movePointer(null));
  return figure;
}

function movePointer(x) {
  pointer = x;
  CHARTS.forEach(drawChart);
}

// The points of the run under way, without its prefill once its workers have begun: else these would flatten it.
function listPoints() {
  if (find("all").checked) return state.points;
  return state.points.filter((point) => point.at >= state.since);
}

function drawChart(chart) {
  const points = listPoints();
  const used = chart.lines.filter(([, read]) => points.some((point) => read(point) != null));
  if (!used.length) {
    // When a run has just begun, the picture of the one before stays until there are new points.
    if (state.points.length && state.points.at(-1).at - state.since > GAP_S) find(`chart-${chart.id}`)?.remove();
    return;
  }
  const figure = findChart(chart), svg = figure.querySelector("svg");
  const width = figure.clientWidth;
  const last = points.at(-1).at;
  const first = Math.min(points[0].at, last - SHORTEST_S);
  const toX = (at) => LEFT + (width - LEFT - RIGHT) * (at - first) / (last - first);
  const measured = Math.max(...used.flatMap(([, read]) => points.map((point) => read(point) ?? 0)));
  // A limit that is far away would flatten the lines: it is named only.
  const limits = state.limits.filter((limit) => limit.role === chart.limited);
  const near = limits.filter((limit) => limit.at_most <= MOST_AWAY * measured);
  const highest = Math.max(measured, ...near.map((limit) => limit.at_most));
  const [top, step] = chooseScale(highest);
  const toY = (value) => HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top;

  const parts = [];
  const add = (name, attributes, text = null) => parts.push(make(name, attributes, text, SVG));
  for (let value = 0; value <= top * 1.001; value += step) {
    const y = toY(value);
    add("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y, y2: y });
    add("text", { x: LEFT - 5, y: y + 4, "text-anchor": "end" }, shorten(value));
  }
  add("text", { x: LEFT, y: HEIGHT - 4 }, clock(first));
  add("text", { x: width - RIGHT, y: HEIGHT - 4, "text-anchor": "end" }, clock(last));
  const line = (kind, at) => add("line", { class: kind, x1: toX(at), x2: toX(at), y1: TOP, y2: HEIGHT - BOTTOM });
  for (const run of state.runs) if (run.at > first && run.at <= last) line("begin", run.at);
  for (const mark of state.marks) {
    if (mark.at < first) continue;
    line("mark", mark.at);
    add("text", { class: "mark", x: toX(mark.at), y: TOP - 3, "text-anchor": "middle" }, String(mark.number));
  }

  for (const limit of near) {
    const y = toY(limit.at_most);
    add("line", { class: "limit", x1: LEFT, x2: width - RIGHT, y1: y, y2: y });
    add("text", { class: "limit", x: width - RIGHT, y: y - 3, "text-anchor": "end" }, limit.text);
  }

  const nearest = findNearest(points, pointer, toX);
  const keys = [make("h3", {}, chart.title)];
  for (const [name, read] of used) {
    const colour = COLOURS[chart.lines.findIndex(([label]) => label === name)];
    add("path", { class: colour, d: trace(points, read, toX, toY) });
    const shown = nearest ?? points.at(-1);
    keys.push(make("span", { class: `key ${colour}` }, `${name} ${write(read(shown))}`));
    if (nearest && read(nearest) != null) add("circle", { class: colour, cx: toX(nearest.at), cy: toY(read(nearest)), r: 3 });
  }
  if (nearest) {
    line("cursor", nearest.at);
    keys.push(make("span", {}, clock(nearest.at)));
  }
  for (const limit of limits) if (!near.includes(limit)) keys.push(make("span", { class: "far" }, `limit ${limit.text}, far above`));
  figure.querySelector("figcaption").replaceChildren(...keys);
  svg.setAttribute("aria-label", keys.map((key) => key.textContent).join(", "));
  svg.replaceChildren(...parts);
}

function findNearest(points, x, toX) {
  if (x === null) return null;
  const distance = (point) => Math.abs(toX(point.at) - x);
  return points.reduce((best, point) => (distance(point) < distance(best) ? point : best));
}

// The line has a gap where nothing was measured.
function trace(points, read, toX, toY) {
  let text = "", before = null;
  for (const point of points) {
    const value = read(point), goesOn = before !== null && point.at - before < GAP_S;
    if (value != null) text += `${goesOn ? "L" : "M"}${toX(point.at).toFixed(1)} ${toY(value).toFixed(1)}${goesOn ? "" : "h.1"}`;
    before = value == null ? null : point.at;
  }
  return text;
}

function chooseScale(highest) {
  if (!(highest > 0)) return [1, 1];
  const power = 10 ** Math.floor(Math.log10(highest / 3));
  const step = [1, 2, 5, 10].map((times) => times * power).find((size) => highest / size <= 4);
  return [step * Math.ceil(highest / step), step];
}

function shorten(value) {
  for (const [size, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (value >= size) return `${+(value / size).toPrecision(3)}${letter}`;
  }
  return String(+value.toPrecision(3));
}

document.addEventListener("visibilitychange", () => { if (!document.hidden && state.points.length) show(); });
addEventListener("resize", draw);
find("all").addEventListener("change", () => CHARTS.forEach(drawChart));
connect();
