
// --- the comparison: what matters, who is shown, in which order. The page's address keeps all of it. ---

const view = document.getElementById("view");
const MISSING = Math.log(2);
const state = { sort: "", down: true };

const tables = [...document.querySelectorAll(".field")].map((section) => ({
  section,
  quantiles: JSON.parse(section.dataset.quantiles),
  body: section.querySelector("tbody"),
  heads: [...section.querySelectorAll("thead th")],
  columns: [...section.querySelectorAll("thead th[data-aspect]")].map((head) => ({
    key: head.dataset.column, aspect: head.dataset.aspect, head,
  })),
  rows: [...section.querySelectorAll("tbody tr")].map((element) => ({
    element,
    number: Number(element.dataset.row),
    name: element.querySelector("th a").textContent.trim(),
    score: element.querySelector("td.score"),
    cells: [...element.querySelectorAll("td[data-column]")].map((cell) => ({
      cell, data: cell.dataset.cell ? JSON.parse(cell.dataset.cell) : null,
    })),
  })),
}));

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

// The best and the worst value among the rows shown: of each query, or of the column's only figure.
function findEnds(shown, place) {
  const best = {};
  const worst = {};
  for (const { cells } of shown) {
    for (const [key, value] of Object.entries(cells[place].data?.logs ?? {})) {
      best[key] = Math.max(best[key] ?? -Infinity, value);
      worst[key] = Math.min(worst[key] ?? Infinity, value);
    }
  }
  return { best, worst };
}

// The logarithm of the ratio to the best.
function rate(data, { best, worst }) {
  return mean(Object.keys(best).map((key) => (data.logs[key] ?? worst[key] - MISSING) - best[key]));
}

const format = (best, open, of) => {
  if (!open) return `${best}`;
  return best === 1 && open === of - 1 ? "undecided" : `${best} to ${best + open}`;
};

function drawColumn(shown, place) {
  const ends = findEnds(shown, place);
  const rows = shown.filter((row) => row.cells[place].data);
  const alone = rows.every((row) => row.cells[place].data.n < 2);
  for (const row of rows) {
    const { cell, data } = row.cells[place];
    const others = rows.filter((other) => other !== row);
    const worse = others.filter((other) => other.cells[place].data.better.includes(row.number)).length;
    const decided = others.filter((other) => data.better.includes(other.number) || data.alike.includes(other.number));
    const open = others.length - worse - decided.length;
    cell.classList.toggle("leads", worse === 0);
    cell.querySelector(".rank").textContent = alone || !others.length ? "" : format(1 + worse, open, rows.length);
    cell.querySelector(".bar").style.setProperty("--share", Math.exp(rate(data, ends)));
  }
}

// Each column's share of the weights; several columns of one kind share its weight.
function shareWeights(table) {
  const weights = table.columns.map(({ aspect }) => {
    const alike = table.columns.filter((column) => column.aspect === aspect).length;
    return Math.max(0, Number(view.elements[aspect]?.value) || 0) / alike;
  });
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return total ? weights.map((weight) => weight / total) : weights;
}

function scoreAll(table, shown, weights) {
  const ends = table.columns.map((_, place) => findEnds(shown, place));
  return shown.map((row) => {
    const parts = weights.map((weight, place) => ({ weight, data: row.cells[place].data, place })).filter(({ weight }) => weight);
    const missing = parts.filter(({ data }) => !data);
    return {
      row,
      missing: missing.map(({ place }) => table.columns[place].head.textContent.trim()),
      value: missing.length || !parts.length ? null
        : parts.reduce((sum, { weight, data, place }) => sum + weight * rate(data, ends[place]), 0),
      errors: missing.length ? null : parts.map(({ weight, data }) => ({
        error: data.variance === null ? null : weight ** 2 * data.variance, freedom: data.n - 1,
      })),
    };
  });
}

// Whether the first is shown to be better: Welch's t on the logarithms, as in the columns.
function isBetter(first, second, quantiles) {
  const errors = [...first.errors, ...second.errors];
  if (errors.some(({ error }) => error === null)) return false;
  const sum = errors.reduce((total, { error }) => total + error, 0);
  const freedom = sum ** 2 / errors.reduce((total, { error, freedom: own }) => total + error ** 2 / own, 0);
  const place = Math.min(quantiles.length, Math.max(1, Math.floor(freedom || 1))) - 1;
  return first.value - second.value > quantiles[place] * Math.sqrt(sum);
}

function drawScores(table, shown, weights) {
  const scores = scoreAll(table, shown, weights);
  const scored = scores.filter(({ value }) => value !== null);
  const top = Math.max(...scored.map(({ value }) => value));
  for (const score of scores) {
    const cell = score.row.score;
    const others = scored.filter((other) => other !== score);
    const worse = scored.includes(score) ? others.filter((other) => isBetter(other, score, table.quantiles)).length : 0;
    const better = scored.includes(score) ? others.filter((other) => isBetter(score, other, table.quantiles)).length : 0;
    const parts = [];
    if (score.value === null) {
      cell.className = "score none";
      parts.push(score.missing.length ? `no score: no ${score.missing.join(", no ")}` : "-");
    } else {
      const rank = document.createElement("strong");
      rank.className = "rank";
      rank.textContent = others.length ? format(1 + worse, others.length - worse - better, 1 + others.length) : "";
      const bar = document.createElement("span");
      bar.className = "bar unsure";
      const variance = score.errors.reduce((sum, { error }) => (sum === null || error === null ? null : sum + error), 0);
      const freedom = Math.min(...score.errors.map(({ freedom: own }) => own));
      if (variance !== null && freedom > 0) bar.className = "bar";
      bar.style.setProperty("--share", Math.exp(score.value - top));
      bar.style.setProperty("--spread", variance === null ? 1 : Math.exp(2 * Math.sqrt(variance)));
      cell.className = worse ? "score" : "score leads";
      parts.push(rank, ` ${Math.round(100 * Math.exp(score.value))} %`, bar);
    }
    cell.replaceChildren(...parts);
    score.row.total = score.value;
  }
}

function sortRows(table, shown) {
  const place = table.columns.findIndex(({ key, aspect }) => key === state.sort || aspect === state.sort);
  const ends = place < 0 ? null : findEnds(shown, place);
  const keys = new Map(table.rows.map((row) => {
    if (ends) return [row, row.cells[place].data ? rate(row.cells[place].data, ends) : null];
    return [row, state.sort === "name" ? null : row.total ?? null];
  }));
  const sorted = [...table.rows].sort((a, b) => {
    const [first, second] = [keys.get(a), keys.get(b)];
    if (first === null || second === null) {
      const order = (first === null) - (second === null) || a.number - b.number;
      return state.sort === "name" && !state.down ? -order : order;
    }
    return (state.down ? second - first : first - second) || a.number - b.number;
  });
  table.body.append(...sorted.map(({ element }) => element));
  const sortedBy = place < 0 ? state.sort || "score" : table.columns[place].key;
  for (const head of table.heads) {
    if (head.dataset.column === sortedBy) {
      // Best first is rising for names, and where less is better.
      const rising = state.down === ("less" in head.dataset || sortedBy === "name");
      head.setAttribute("aria-sort", rising ? "ascending" : "descending");
    } else {
      head.removeAttribute("aria-sort");
    }
  }
}

function fits(row, section) {
  return [...view.elements].every(({ tagName, name, value }) => {
    if (tagName !== "SELECT" || name === "sort" || !value) return true;
    if (name === "workload" || name === "hardware") return section.dataset[name] === value;
    return (JSON.parse(row.element.dataset.is)[name] ?? "-") === value;
  });
}

function draw() {
  let any = false;
  for (const table of tables) {
    const shown = table.rows.filter((row) => fits(row, table.section));
    for (const row of table.rows) row.element.hidden = !shown.includes(row);
    table.section.hidden = !shown.length;
    any ||= shown.length > 0;
    const weights = shareWeights(table);
    const counted = weights.some(Boolean);
    table.columns.forEach(({ head }, place) => {
      const uncounted = counted && !weights[place];
      head.classList.toggle("uncounted", uncounted);
      for (const { cells } of table.rows) cells[place].cell.classList.toggle("uncounted", uncounted);
      drawColumn(shown, place);
    });
    drawScores(table, shown, weights);
    sortRows(table, shown);
  }
  document.getElementById("nobody").hidden = any;
}

// --- the address ---

const getDefault = (control) => (control.tagName === "SELECT" ? "" : control.defaultValue);

function write() {
  const parameters = new URLSearchParams();
  for (const control of view.elements) {
    if (control.name && control.name !== "sort" && control.value !== getDefault(control)) parameters.set(control.name, control.value);
  }
  if (state.sort || !state.down) parameters.set("sort", `${state.down ? "" : "-"}${state.sort || "score"}`);
  history.replaceState(null, "", `#${parameters}`);
}

function read() {
  const parameters = new URLSearchParams(location.hash.slice(1));
  for (const control of view.elements) {
    if (!control.name || control.name === "sort") continue;
    const value = parameters.get(control.name) ?? getDefault(control);
    const valid = control.tagName !== "SELECT" || [...control.options].some((option) => option.value === value);
    control.value = valid ? value : "";
  }
  const sort = parameters.get("sort") ?? "";
  state.down = !sort.startsWith("-");
  state.sort = sort.replace(/^-/, "").replace(/^score$/, "");
  showSort();
  draw();
}

function showSort() {
  const aspect = state.sort.replace(/-\d+$/, "");
  const { sort } = view.elements;
  sort.value = [...sort.options].some((option) => option.value === aspect) ? aspect : "";
}

function change() {
  write();
  draw();
}

if (tables.length) {
  const choice = document.getElementById("choice");
  choice.hidden = false;
  // On a telephone the comparison comes first.
  choice.open = !matchMedia("(max-width: 48rem)").matches;
  for (const cell of document.querySelectorAll(".score")) cell.hidden = false;
  view.addEventListener("input", (event) => {
    if (event.target.name === "sort") Object.assign(state, { sort: event.target.value, down: true });
    change();
  });
  view.addEventListener("submit", (event) => event.preventDefault());
  view.addEventListener("reset", () => setTimeout(() => {
    Object.assign(state, { sort: "", down: true });
    change();
  }));
  for (const { heads } of tables) {
    for (const head of heads) {
      head.querySelector("button").addEventListener("click", () => {
        const key = head.dataset.column === "score" ? "" : head.dataset.column;
        Object.assign(state, { sort: key, down: state.sort === key ? !state.down : true });
        showSort();
        change();
      });
    }
  }
  window.addEventListener("hashchange", read);
  read();
}
