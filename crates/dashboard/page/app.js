// The page of the manager: gets the whole state, then changes, as server-sent events, and draws them. Text from the cluster is only
// ever set as text, never as markup.
'use strict';

const SVG = 'http://www.w3.org/2000/svg';
const ROWS_SHOWN = 50;
const HISTORY_SAMPLES = 600;
const HISTORY_MS = 600000;
const SPARK_SAMPLES = 60;
const TIMELINE_SHOWN = 100;
const TREE_ROWS = 300;
const CHILDREN_SHOWN = 8;
const MARK_STEP = 3;
const SILENCE_MS = 25000;

// ---- The state, as the manager reports it.

const data = {
  summary: null, nodes: new Map(), jobs: new Map(), groups: new Map(), late: [], trees: [], errors: {}, history: [], timeline: new Map(),
};
const sparks = { nodes: new Map(), jobs: new Map() };

const keys = { nodes: (row) => row.name, jobs: (row) => row.job, groups: (row) => `${row.group} ${row.epoch}` };

function setState(state) {
  for (const list of Object.keys(keys)) {
    data[list] = new Map(state[list].map((row) => [keys[list](row), row]));
  }
  Object.assign(data, { late: state.late, trees: state.trees, errors: state.errors, history: state.history });
  data.timeline = new Map(state.timeline.map((entry) => [entry.id, entry]));
  data.summary = state.summary;
  noteSparks();
}

function applyChange(change) {
  for (const list of Object.keys(keys)) {
    change[list].gone.forEach((key) => data[list].delete(key));
    change[list].set.forEach((row) => data[list].set(keys[list](row), row));
  }
  for (const field of ['late', 'trees', 'errors']) {
    if (change[field] !== undefined) data[field] = change[field];
  }
  if (change.sample) {
    data.history.push(change.sample);
    data.history.splice(0, data.history.length - HISTORY_SAMPLES);
    while (data.history[0].at_ms < change.sample.at_ms - HISTORY_MS) data.history.shift();
  }
  for (const entry of change.timeline) {
    data.timeline.set(entry.id, entry);
    if (entry.severity === 'failure') announce(entry.text);
  }
  forgetOldEntries();
  data.summary = change.summary;
  noteSparks();
}

function forgetOldEntries() {
  if (data.timeline.size <= 500) return;
  const entries = [...data.timeline.values()].sort((a, b) => b.number - a.number);
  entries.slice(500).forEach((entry) => data.timeline.delete(entry.id));
}

function noteSparks() {
  for (const list of ['nodes', 'jobs']) {
    for (const key of sparks[list].keys()) if (!data[list].has(key)) sparks[list].delete(key);
    for (const [key, row] of data[list]) {
      const samples = sparks[list].get(key) ?? [];
      samples.push(row.operations_per_second ?? 0);
      if (samples.length > SPARK_SAMPLES) samples.shift();
      sparks[list].set(key, samples);
    }
  }
}

// ---- Words and numbers.

const grouped = new Intl.NumberFormat('en');

function count(value) {
  return grouped.format(value);
}

function rate(value) {
  if (value === null || value === undefined) return '–';
  const units = [[1e9, ' G'], [1e6, ' M'], [1e4, ' k', 1e3]];
  for (const [from, unit, scale] of units) {
    if (value >= from) return (value / (scale ?? from)).toPrecision(3) + unit;
  }
  return value >= 100 || Number.isInteger(value) ? count(Math.round(value)) : value.toFixed(1);
}

function micros(value) {
  if (value === null || value === undefined) return '–';
  if (value < 1e3) return `${value < 10 ? value.toFixed(1) : Math.round(value)} µs`;
  return value < 1e6 ? `${(value / 1e3).toPrecision(3)} ms` : `${(value / 1e6).toPrecision(3)} s`;
}

function percent(value) {
  return value === null || value === undefined ? '–' : `${(value * 100).toFixed(1)} %`;
}

function clock(ms) {
  return new Date(ms).toLocaleTimeString('en-GB');
}

function plural(number, word, words = `${word}s`) {
  return `${count(number)} ${number === 1 ? word : words}`;
}

function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  Object.assign(made, properties);
  made.append(...children);
  return made;
}

function drawing(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

function byId(id) {
  return document.getElementById(id);
}

let announced = '';

// Spoken by screen readers. Only failures: everything else changes too often.
function announce(text) {
  announced = announced ? `${announced}. ${text}` : text;
  setTimeout(() => {
    if (announced) byId('announcements').textContent = announced.slice(0, 500);
    announced = '';
  }, 200);
}

// ---- Tables: sorted, filtered, with a limited number of rows.

class DataTable {
  constructor(section, options) {
    Object.assign(this, options);
    this.shown = ROWS_SHOWN;
    this.sort = options.sort;
    this.body = element('tbody');
    this.count = element('span', { className: 'count' });
    this.filter = element('input', { type: 'search', autocomplete: 'off', id: `${section}-filter` });
    this.more = element('button', { type: 'button', className: 'more', textContent: 'Show more rows' });
    this.more.addEventListener('click', () => this.showMore());
    this.filter.addEventListener('input', () => { this.shown = ROWS_SHOWN; this.render(); });
    const heads = this.columns.map((column, index) => this.head(column, index));
    const table = element('table', {}, element('thead', {}, element('tr', {}, ...heads)), this.body);
    table.setAttribute('aria-labelledby', `${section}-title`);
    this.region = element('div', { className: 'scroll', tabIndex: 0 }, table);
    this.region.setAttribute('role', 'region');
    this.region.setAttribute('aria-labelledby', `${section}-title`);
    const tools = element('div', { className: 'tools' }, element('label', {}, 'Filter ', this.filter), this.count);
    byId(section).append(tools, this.region, this.more);
    this.heads = heads;
    this.markSort();
  }

  head(column, index) {
    if (!column.value) return element('th', { scope: 'col', className: 'unsorted', textContent: column.title });
    const button = element('button', { type: 'button', textContent: column.title });
    button.addEventListener('click', () => {
      const same = this.sort.index === index;
      this.sort = { index, down: same ? !this.sort.down : Boolean(column.number) };
      this.markSort();
      this.render();
    });
    // A browser leaves a button alone that a wide table shows in part.
    button.addEventListener('focus', () => button.scrollIntoView({ block: 'nearest', inline: 'nearest' }));
    return element('th', { scope: 'col', className: column.number ? 'number' : '' }, button);
  }

  showMore() {
    this.shown += 200;
    this.render();
    // With the last rows the button goes; the focus would go to the top of the page.
    if (this.more.hidden) this.region.focus({ preventScroll: true });
  }

  markSort() {
    this.heads.forEach((head, index) => {
      if (index === this.sort.index) head.setAttribute('aria-sort', this.sort.down ? 'descending' : 'ascending');
      else head.removeAttribute('aria-sort');
    });
  }

  chosen() {
    const wanted = this.filter.value.trim().toLowerCase();
    const rows = this.rows().filter((row) => !wanted || this.words(row).toLowerCase().includes(wanted));
    const { value } = this.columns[this.sort.index];
    const direction = this.sort.down ? -1 : 1;
    const keyed = rows.map((row) => [value(row), row]);
    keyed.sort(([a], [b]) => {
      const order = typeof a === 'string' ? (a < b ? -1 : Number(a > b)) : (a ?? -1) - (b ?? -1);
      return order * direction;
    });
    return keyed.map(([, row]) => row);
  }

  render() {
    const all = this.rows().length;
    const rows = this.chosen();
    const shown = rows.slice(0, this.shown);
    while (this.body.rows.length > shown.length) this.body.deleteRow(-1);
    shown.forEach((row, index) => this.renderRow(this.body.rows[index] ?? this.body.appendChild(this.emptyRow()), row));
    const matching = rows.length === all ? '' : `, ${count(rows.length)} match`;
    setText(this.count, all === 0 ? 'nothing yet' : `${count(shown.length)} of ${plural(all, this.noun, this.nouns)} shown${matching}`);
    this.more.hidden = rows.length <= shown.length;
  }

  emptyRow() {
    const cells = this.columns.map((column) => element('td', { className: column.className ?? (column.number ? 'number' : '') }));
    return element('tr', {}, ...cells);
  }

  renderRow(line, row) {
    const tone = this.tone ? this.tone(row) : '';
    if (line.className !== tone) line.className = tone;
    this.columns.forEach((column, index) => {
      const cell = line.cells[index];
      if (column.draw) return column.draw(cell, row);
      const text = column.text ? column.text(row) : String(column.value(row) ?? '–');
      setText(cell, text);
      if (column.className === 'name' && cell.title !== text) cell.title = text;
    });
  }
}

function spark(list, key) {
  return (cell, row) => {
    const samples = sparks[list].get(key(row)) ?? [];
    let line = cell.querySelector('polyline');
    if (!line) {
      line = drawing('polyline', { class: 'line-1' });
      cell.append(drawing('svg', { class: 'spark', viewBox: '0 0 90 20', 'aria-hidden': 'true' }, line));
    }
    const highest = Math.max(1, ...samples);
    const left = SPARK_SAMPLES - samples.length;
    const points = samples.map((value, at) => `${((left + at) * 90 / SPARK_SAMPLES).toFixed(1)},${(18 - value / highest * 16).toFixed(1)}`);
    const text = points.join(' ');
    if (line.getAttribute('points') !== text) line.setAttribute('points', text);
  };
}

function sum(record) {
  return Object.values(record).reduce((total, value) => total + value, 0);
}

function jobName(id) {
  return data.jobs.get(id)?.name ?? id;
}

const tables = {};

function makeTables() {
  tables.nodes = new DataTable('nodes', {
    noun: 'node',
    sort: { index: 1, down: true },
    rows: () => [...data.nodes.values()],
    words: (row) => `${row.name} ${row.alive ? 'alive' : 'lost'} ${row.parents.join(' ')} ${row.version}`,
    tone: (row) => (row.alive ? '' : 'bad'),
    columns: [
      { title: 'Node', value: (row) => row.name, className: 'name' },
      { title: 'State', value: (row) => (row.alive ? 'alive' : 'lost') },
      { title: 'Below', value: (row) => row.parents.join(', '), className: 'name' },
      { title: 'Op/s', number: true, value: (row) => row.operations_per_second, text: (row) => rate(row.operations_per_second) },
      { title: 'Last minute', draw: spark('nodes', (row) => row.name) },
      { title: 'Half within', number: true, value: (row) => row.latency?.p50_us, text: (row) => micros(row.latency?.p50_us) },
      { title: '99 % within', number: true, value: (row) => row.latency?.p99_us, text: (row) => micros(row.latency?.p99_us) },
      { title: 'Seats', number: true, value: (row) => row.seats, text: (row) => `${count(row.seats)} of ${count(row.most_seats)}` },
      { title: 'In flight', number: true, value: (row) => row.in_flight, text: (row) => count(row.in_flight) },
      { title: 'Packets/s', number: true, value: (row) => row.packets_per_second, text: (row) => rate(row.packets_per_second) },
      { title: 'Sent again', number: true, value: (row) => row.repeated, text: (row) => count(row.repeated) },
      { title: 'Dropped', number: true, value: (row) => sum(row.dropped), text: (row) => count(sum(row.dropped)) },
      { title: 'Migrations', number: true, value: (row) => row.migrations, text: (row) => count(row.migrations) },
    ],
  });
  tables.late = new DataTable('late', {
    noun: 'host or node',
    nouns: 'hosts and nodes',
    sort: { index: 5, down: true },
    rows: () => data.late,
    words: (row) => `${row.name} ${row.at}`,
    tone: (row) => ((row.waiting ?? 0) >= 0.5 ? 'warn' : ''),
    columns: [
      { title: 'Host or node', value: (row) => row.name, className: 'name' },
      { title: 'Waited for at', value: (row) => `node ${row.at}`, className: 'name' },
      { title: 'Last in', number: true, value: (row) => row.share, text: (row) => percent(row.share) },
      { title: 'Mean wait', number: true, value: (row) => row.mean_us, text: (row) => micros(row.mean_us) },
      { title: 'Longest', number: true, value: (row) => row.longest_us, text: (row) => micros(row.longest_us) },
      { title: 'Time waited', number: true, value: (row) => row.waiting, text: (row) => percent(row.waiting) },
    ],
  });
  makeJobTables();
}

function makeJobTables() {
  tables.jobs = new DataTable('jobs', {
    noun: 'job',
    sort: { index: 4, down: true },
    rows: () => [...data.jobs.values()],
    words: (row) => `${row.name} ${row.job} ${row.attached ? 'attached' : 'detached'} ${row.last_refusal ?? ''}`,
    tone: (row) => (row.attached ? '' : 'warn'),
    columns: [
      { title: 'Job', value: (row) => row.name, className: 'name' },
      { title: 'Number', value: (row) => row.job },
      { title: 'State', value: (row) => (row.attached ? 'attached' : 'detached') },
      { title: 'Groups', number: true, value: (row) => row.groups, text: (row) => count(row.groups) },
      { title: 'Op/s', number: true, value: (row) => row.operations_per_second, text: (row) => rate(row.operations_per_second) },
      { title: 'Last minute', draw: spark('jobs', (row) => row.job) },
      { title: 'Operations', number: true, value: (row) => row.operations, text: (row) => count(row.operations) },
      { title: 'Refused', number: true, value: (row) => row.refused, text: (row) => count(row.refused) },
      { title: 'Revoked', number: true, value: (row) => row.revoked, text: (row) => count(row.revoked) },
      { title: 'Why', value: (row) => row.last_refusal ?? '', className: 'wide' },
    ],
  });
  tables.groups = new DataTable('groups', {
    noun: 'group',
    sort: { index: 5, down: true },
    rows: () => [...data.groups.values()],
    words: (row) => `${row.group} ${jobName(row.job)} ${row.phase} ${row.nodes.join(' ')}`,
    tone: (row) => (row.phase === 'open' ? '' : 'warn'),
    columns: [
      { title: 'Group', number: true, value: (row) => row.group, text: (row) => `${row.group} (${row.epoch})` },
      { title: 'Job', value: (row) => jobName(row.job), className: 'name' },
      { title: 'Phase', value: (row) => row.phase },
      { title: 'Hosts', number: true, value: (row) => row.leaders, text: (row) => count(row.leaders) },
      { title: 'Window', number: true, value: (row) => row.window, text: (row) => count(row.window) },
      { title: 'Op/s', number: true, value: (row) => row.operations_per_second, text: (row) => rate(row.operations_per_second) },
      { title: 'Operations', number: true, value: (row) => row.operations, text: (row) => count(row.operations) },
      { title: 'Nodes, the root first', value: (row) => row.nodes.join(', '), className: 'name' },
    ],
  });
  tables.errors = new DataTable('errors', {
    noun: 'cause',
    sort: { index: 1, down: true },
    rows: () => Object.entries(data.errors),
    words: ([cause]) => cause,
    columns: [
      { title: 'Cause', value: ([cause]) => cause, className: 'wide' },
      { title: 'Count', number: true, value: ([, value]) => value, text: ([, value]) => count(value) },
    ],
  });
}

// ---- Charts over the last ten minutes.

function timeSpan() {
  const last = data.history.at(-1)?.at_ms ?? Date.now();
  const first = data.history[0]?.at_ms ?? last;
  return { from: Math.min(first, last - 60000), to: last };
}

function niceMaximum(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value);
}

function timeLabels(svg, left, width, bottom) {
  const { from, to } = timeSpan();
  const seconds = Math.round((to - from) / 1000);
  const ago = seconds >= 120 ? `${Math.round(seconds / 60)} min ago` : `${seconds} s ago`;
  svg.append(drawing('text', { x: left, y: bottom }, ago));
  svg.append(drawing('text', { x: width, y: bottom, 'text-anchor': 'end' }, 'now'));
}

function drawChart(target, lines, format, label) {
  const width = target.clientWidth;
  const [height, left, top, bottom] = [150, 64, 8, 128];
  const { from, to } = timeSpan();
  const values = lines.flatMap((line) => line.filter(([, value]) => value !== null).map(([, value]) => value));
  const highest = niceMaximum(Math.max(0, ...values));
  const svg = drawing('svg', { width, height, role: 'img', 'aria-label': label });
  for (const part of [0, 0.5, 1]) {
    const y = bottom - part * (bottom - top);
    svg.append(drawing('line', { x1: left, x2: width, y1: y, y2: y, class: 'grid' }));
    svg.append(drawing('text', { x: left - 6, y: y + 4, 'text-anchor': 'end' }, format(part * highest)));
  }
  lines.forEach((line, index) => {
    const runs = [[]];
    for (const [at, value] of line) {
      if (value === null) runs.push([]);
      else runs.at(-1).push(`${(left + (at - from) / (to - from) * (width - left)).toFixed(1)},${(bottom - value / highest * (bottom - top)).toFixed(1)}`);
    }
    runs.filter((run) => run.length > 1).forEach((run) => {
      svg.append(drawing('polyline', { points: run.join(' '), class: `line-${index + 1}` }));
    });
  });
  timeLabels(svg, left, width, height - 6);
  target.replaceChildren(svg);
}

function drawCharts() {
  const { history } = data;
  const line = (field) => history.map((sample) => [sample.at_ms, sample[field]]);
  const last = history.at(-1) ?? {};
  const again = history.map((sample, at) => {
    const before = history[at - 1];
    if (!before || sample.at_ms <= before.at_ms || sample.repeated < before.repeated) return [sample.at_ms, null];
    return [sample.at_ms, (sample.repeated - before.repeated) * 1000 / (sample.at_ms - before.at_ms)];
  });
  setText(byId('now-rate'), rate(last.operations_per_second));
  setText(byId('now-p50'), micros(last.p50_us));
  setText(byId('now-p99'), micros(last.p99_us));
  setText(byId('now-packets'), rate(last.packets_per_second));
  setText(byId('now-repeated'), rate(again.at(-1)?.[1]));
  drawChart(byId('chart-rate'), [line('operations_per_second')], rate, `Operations per second, now ${rate(last.operations_per_second)}`);
  const latency = `Time of an operation, now half within ${micros(last.p50_us)}, 99 % within ${micros(last.p99_us)}`;
  drawChart(byId('chart-latency'), [line('p50_us'), line('p99_us')], micros, latency);
  drawChart(byId('chart-packets'), [line('packets_per_second'), again], rate, `Packets per second, now ${rate(last.packets_per_second)}`);
}

// ---- The timeline.

const severities = { failure: 'failure', warning: 'warning', info: 'info' };

function timelineEntries() {
  return [...data.timeline.values()].sort((a, b) => b.number - a.number);
}

// One mark for all events of a kind that would cover each other: a thousand nodes may register at once.
function stripMarks(entries, place) {
  const marks = new Map();
  for (const entry of entries) {
    const x = place(entry.at_ms);
    const key = `${entry.severity} ${Math.round(x / MARK_STEP)}`;
    const mark = marks.get(key);
    if (mark) mark.others += 1;
    else marks.set(key, { x, entry, others: 0 });
  }
  return marks.values();
}

function drawStrip() {
  const target = byId('strip');
  const { from, to } = timeSpan();
  const [width, height, left] = [target.clientWidth, 44, 8];
  const entries = timelineEntries().filter((entry) => entry.at_ms >= from);
  const failures = entries.filter((entry) => entry.severity === 'failure').length;
  const label = `${plural(entries.length, 'event')} since ${clock(from)}, of them ${plural(failures, 'failure')}`;
  const svg = drawing('svg', { width, height, role: 'img', 'aria-label': label });
  svg.append(drawing('line', { x1: left, x2: width - left, y1: 14, y2: 14, class: 'grid' }));
  for (const { x, entry, others } of stripMarks(entries.reverse(), (at) => left + Math.min(1, (at - from) / (to - from)) * (width - 2 * left))) {
    const shapes = {
      failure: `M${x} 5l9 9-9 9-9-9z`, warning: `M${x} 7l7 12h-14z`, info: `M${x - 3} 11h6v6h-6z`,
    };
    const title = drawing('title', {}, `${clock(entry.at_ms)} ${entry.text}${others ? `, and ${count(others)} more` : ''}`);
    svg.append(drawing('path', { d: shapes[entry.severity], class: `mark-${entry.severity}` }, title));
  }
  timeLabels(svg, left, width - left, height - 4);
  target.replaceChildren(svg);
}

function drawTimeline() {
  const severity = byId('timeline-severity').value;
  const wanted = byId('timeline-filter').value.trim().toLowerCase();
  const allowed = { all: ['failure', 'warning', 'info'], warning: ['failure', 'warning'], failure: ['failure'] }[severity];
  const all = timelineEntries();
  const matching = all.filter((entry) => allowed.includes(entry.severity) && entry.text.toLowerCase().includes(wanted));
  const shown = matching.slice(0, TIMELINE_SHOWN);
  const list = byId('timeline-list');
  while (list.children.length > shown.length) list.lastElementChild.remove();
  shown.forEach((entry, index) => {
    const line = list.children[index] ?? list.appendChild(element('li', {},
      element('time'), element('span', { className: 'kind' }), element('span', { className: 'text' })));
    if (line.className !== entry.severity) line.className = entry.severity;
    setText(line.children[0], clock(entry.at_ms));
    setText(line.children[1], severities[entry.severity]);
    setText(line.children[2], entry.count > 1 ? `${entry.text} (${count(entry.count)} times)` : entry.text);
  });
  setText(byId('timeline-count'), all.length === 0 ? 'no events yet' : `${count(shown.length)} of ${plural(all.length, 'event')} shown`);
}

// ---- Trees: the root at the left, a row for each leaf, so that no two labels meet.

function treeOptions() {
  const options = [['declared', 'all nodes, below the parents that they name']];
  for (const tree of data.trees.filter((tree) => tree.nodes > 1)) {
    options.push([`tree ${tree.root}`, `below ${tree.root}: ${plural(tree.nodes, 'node')}, ${plural(tree.groups, 'group')}`]);
  }
  const busiest = [...data.groups.values()].sort((a, b) => (b.operations_per_second ?? 0) - (a.operations_per_second ?? 0));
  for (const group of busiest.filter((group) => group.nodes.length > 0).slice(0, 200)) {
    options.push([`group ${keys.groups(group)}`, `group ${group.group} of ${jobName(group.job)}: ${plural(group.nodes.length, 'node')}`]);
  }
  return options;
}

function drawTreeOptions() {
  const choice = byId('tree-choice');
  const options = treeOptions();
  const text = JSON.stringify(options);
  if (choice.dataset.options === text || document.activeElement === choice) return;
  choice.dataset.options = text;
  const before = choice.value;
  choice.replaceChildren(...options.map(([value, label]) => element('option', { value, textContent: label })));
  if (options.some(([value]) => value === before)) choice.value = before;
}

// Parents of each node in the chosen tree.
function chosenTree() {
  const [kind, ...rest] = (byId('tree-choice').value || 'declared').split(' ');
  const name = rest.join(' ');
  if (kind === 'group') {
    const group = data.groups.get(name);
    if (!group) return new Map();
    const above = (at) => (group.parents.length ? group.nodes[group.parents[at]] : at === 0 ? undefined : group.nodes[0]);
    return new Map(group.nodes.map((node, at) => [node, above(at) === undefined ? [] : [above(at)]]));
  }
  const parents = new Map([...data.nodes.values()].map((node) => [node.name, node.parents.filter((parent) => data.nodes.has(parent))]));
  if (kind === 'declared') return parents;
  const below = new Set([name]);
  for (let size = 0; size !== below.size;) {
    size = below.size;
    for (const [node, above] of parents) if (above.some((parent) => below.has(parent))) below.add(node);
  }
  return new Map([...parents].filter(([node]) => below.has(node)).map(([node, above]) => [node, above.filter((parent) => below.has(parent))]));
}

function treeRows(parents) {
  const children = new Map();
  const roots = [];
  for (const [node, above] of parents) {
    if (above.length === 0) roots.push(node);
    else if (children.has(above[0])) children.get(above[0]).push(node);
    else children.set(above[0], [node]);
  }
  const isLost = (node) => data.nodes.get(node)?.alive === false;
  const placed = [];
  let row = 0;
  const place = (names, depth, parent) => {
    const sorted = names.sort((a, b) => Number(isLost(b)) - Number(isLost(a)) || (a < b ? -1 : 1));
    const leaves = sorted.filter((node) => !children.has(node));
    const limit = parents.size > 60 && leaves.length > CHILDREN_SHOWN + 1 ? CHILDREN_SHOWN : Infinity;
    const hidden = new Set(leaves.slice(limit));
    for (const node of sorted) {
      if (hidden.has(node) || row >= TREE_ROWS) continue;
      const item = { node, depth, parent, label: node, lost: isLost(node) };
      placed.push(item);
      const own = children.get(node);
      const from = row;
      if (own && depth < 20) place(own, depth + 1, item);
      if (row === from) row += 1;
      item.row = from;
    }
    if (hidden.size) {
      const lost = [...hidden].filter(isLost).length;
      placed.push({ depth, parent, row, label: `and ${count(hidden.size)} more${lost ? `, ${lost} lost` : ''}`, more: true });
      row += 1;
    }
  };
  place(roots, 0, null);
  return { placed, rows: row };
}

function shortened(text, length) {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}

function drawTree() {
  const parents = chosenTree();
  const { placed, rows } = treeRows(parents);
  const drawn = placed.filter((item) => !item.more).length;
  const lost = placed.filter((item) => item.lost).length;
  setText(byId('tree-count'), parents.size === 0 ? 'no nodes' : `${count(drawn)} of ${plural(parents.size, 'node')} drawn${lost ? `, ${lost} lost` : ''}`);
  const target = byId('tree');
  const signature = JSON.stringify([[...parents], placed.map((item) => item.lost)]);
  if (target.dataset.drawn === signature) return;
  target.dataset.drawn = signature;
  const [step, font] = [24, 8];
  const depths = Math.max(0, ...placed.map((item) => item.depth + 1));
  const lefts = [12];
  for (let depth = 0; depth < depths; depth += 1) {
    const longest = Math.max(0, ...placed.filter((item) => item.depth === depth).map((item) => Math.min(28, item.label.length)));
    lefts.push(lefts[depth] + 60 + longest * font);
  }
  const x = (item) => lefts[item.depth];
  const y = (item) => 14 + item.row * step;
  const width = lefts[depths];
  const label = `Tree of ${plural(parents.size, 'node')}${lost ? `, ${lost} lost` : ''}; the table of nodes has the same`;
  const svg = drawing('svg', { width, height: rows * step + 8, role: 'img', 'aria-label': label });
  const at = new Map(placed.map((item) => [item.node, item]));
  for (const item of placed.filter((item) => item.parent)) drawEdge(svg, item, item.parent, x, y, 'edge', font);
  for (const item of placed.filter((item) => item.node)) {
    for (const other of (parents.get(item.node) ?? []).slice(1)) {
      if (at.has(other)) drawEdge(svg, item, at.get(other), x, y, 'edge edge-alternate', font);
    }
  }
  for (const item of placed) drawNode(svg, item, x(item), y(item));
  target.replaceChildren(svg);
}

function drawEdge(svg, child, parent, x, y, kind, font) {
  const from = x(parent) + 18 + Math.min(28, parent.label.length) * font;
  const to = x(child) - 8;
  const middle = Math.max(from, to - 20);
  svg.append(drawing('path', { class: kind, d: `M${from} ${y(parent)}H${middle}V${y(child)}H${to}` }));
}

function drawNode(svg, item, x, y) {
  if (item.lost) svg.append(drawing('path', { class: 'lost', d: `M${x - 5} ${y - 5}l10 10m0-10l-10 10` }));
  else if (!item.more) svg.append(drawing('circle', { class: 'alive', cx: x, cy: y, r: 6 }));
  const kind = item.lost ? 'label label-bad' : item.more ? 'label label-more' : 'label';
  const title = drawing('title', {}, item.lost ? `${item.label} is lost` : item.label);
  svg.append(drawing('text', { class: kind, x: x + 12, y: y + 4.5 }, shortened(item.label, 28), title));
}

// ---- Drawing, once per change.

function drawSummary() {
  const { summary } = data;
  if (!summary) return;
  const hours = summary.uptime_s >= 7200 ? `${Math.floor(summary.uptime_s / 3600)} h` : `${Math.floor(summary.uptime_s / 60)} min`;
  setText(byId('about'), `manager ${summary.manager}, version ${summary.version}, up for ${hours}, ${plural(summary.connections, 'connection')}`);
  const lost = summary.nodes - summary.nodes_alive;
  setText(byId('sum-nodes'), lost ? `${count(summary.nodes_alive)}, ${count(lost)} lost` : count(summary.nodes));
  byId('sum-nodes').className = lost ? 'state-bad' : '';
  setText(byId('sum-jobs'), count(summary.jobs));
  setText(byId('sum-groups'), count(summary.groups) + (summary.left_out ? ` + ${count(summary.left_out)}` : ''));
  setText(byId('sum-rate'), rate(summary.operations_per_second));
  setText(byId('sum-p50'), micros(summary.latency?.p50_us));
  setText(byId('sum-p99'), micros(summary.latency?.p99_us));
  setText(byId('sum-operations'), count(summary.operations));
  document.title = lost ? `(${lost} lost) Pleach` : 'Pleach';
}

function draw() {
  drawSummary();
  drawCharts();
  drawStrip();
  drawTimeline();
  drawTreeOptions();
  drawTree();
  Object.values(tables).forEach((table) => table.render());
}

let scheduled = null;

// Draws before the next frame; a hidden page is drawn when it is seen again.
function schedule(began) {
  if (document.hidden || scheduled) return;
  scheduled = requestAnimationFrame(() => {
    scheduled = null;
    draw();
    setTimeout(() => {
      performance.clearMeasures('update');
      performance.measure('update', { start: began, end: performance.now() });
    });
  });
}

// ---- The connection.

let source = null;
let heardAt = performance.now();

function showConnection(text, kind) {
  const target = byId('connection');
  setText(target, text);
  if (target.className !== `state-${kind}`) target.className = `state-${kind}`;
}

function handle(apply) {
  return (event) => {
    const began = performance.now();
    heardAt = began;
    const message = JSON.parse(event.data);
    apply(message);
    showConnection(`live, ${clock(message.at_ms)}`, 'good');
    schedule(began);
  };
}

function connect() {
  source?.close();
  source = new EventSource('events');
  heardAt = performance.now();
  source.addEventListener('state', handle(setState));
  source.addEventListener('change', handle(applyChange));
  source.addEventListener('error', () => {
    if (!byId('connection').classList.contains('state-bad')) announce('The connection to the manager is lost');
    showConnection('not connected to the manager; trying again', 'bad');
    // A browser does not try again after a refusal.
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, 5000);
  });
}

setInterval(() => {
  if (performance.now() - heardAt > SILENCE_MS) connect();
}, 5000);

makeTables();
byId('tree-choice').addEventListener('change', drawTree);
byId('timeline-severity').addEventListener('change', drawTimeline);
byId('timeline-filter').addEventListener('input', drawTimeline);
document.addEventListener('visibilitychange', () => schedule(performance.now()));
new ResizeObserver(() => schedule(performance.now())).observe(byId('main'));
connect();
