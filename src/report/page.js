'use strict';
// What a report can do beyond being read: pan and zoom of the graph, details of
// a node, search and order of tables.  The page is whole without it.
const all = (selector, root) => [...(root || document).querySelectorAll(selector)];

function button(bar, text, action) {
  const b = bar.appendChild(document.createElement('button'));
  b.textContent = text;
  b.onclick = () => action(b);
  return b;
}

// ---- tables ----------------------------------------------------------------
function sortTable(table, column, head) {
  const down = !head.classList.contains('down');
  const value = row => row.cells[column].dataset.v || row.cells[column].textContent;
  const rows = [...table.tBodies[0].rows].map(row => [value(row), row]);
  const number = text => { const x = parseFloat(text); return isNaN(x) ? -Infinity : x; };
  const numeric = rows.some(r => !isNaN(parseFloat(r[0]))) && head.classList.contains('r');
  rows.sort((a, b) => (numeric ? number(b[0]) - number(a[0]) : b[0].localeCompare(a[0])) || 0);
  if (!down) rows.reverse();
  all('th', table).forEach(th => th.classList.remove('up', 'down'));
  head.classList.add(down ? 'down' : 'up');
  table.tBodies[0].append(...rows.map(r => r[1]));
}

for (const table of all('table')) {
  all('th', table).forEach((head, column) => {
    head.classList.add('sort');
    head.onclick = () => sortTable(table, column, head);
  });
  if (table.tBodies[0].rows.length < 12) continue;
  const bar = document.createElement('div'), input = document.createElement('input');
  const count = document.createElement('span');
  bar.className = 'bar';
  input.type = 'search';
  input.placeholder = 'search';
  input.setAttribute('aria-label', 'search the table');
  bar.append(input, count);
  table.parentNode.before(bar);
  input.oninput = () => {
    const words = input.value.toLowerCase().split(/\s+/);
    let shown = 0;
    for (const row of table.tBodies[0].rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every(word => text.includes(word));
      shown += !row.hidden;
    }
    count.textContent = input.value ? shown + ' of ' + table.tBodies[0].rows.length : '';
  };
}

// ---- the graph -------------------------------------------------------------
const box = document.querySelector('.graph'), svg = box && box.querySelector('svg');

function select(id, center) {
  all('.sel').forEach(e => e.classList.remove('sel'));
  const node = svg && svg.getElementById('n' + id);
  all('tr[data-node="' + id + '"]').forEach(row => row.classList.add('sel'));
  if (node) node.classList.add('sel');
  if (node && center) view.center(node.querySelector('rect'));
  show(id, node);
}

// The panel: the row of the table, one line per cell, and the node's charts.
function show(id, node) {
  let panel = document.getElementById('node');
  if (!panel) {
    panel = document.createElement('div');
    panel.id = 'node';
    box.after(panel);
  }
  panel.textContent = '';
  const list = panel.appendChild(document.createElement('dl'));
  const line = (name, text) => {
    if (!text) return;
    list.appendChild(document.createElement('dt')).textContent = name;
    list.appendChild(document.createElement('dd')).textContent = text;
  };
  const [name, shape] = node ? node.querySelector('title').textContent.split('\n') : [''];
  const told = text => name.startsWith(text + ' ') || name.endsWith(' ' + text);
  line('node', name);
  line('result', shape);
  for (const row of all('tr[data-node="' + id + '"]')) {
    const heads = all('th', row.closest('table'));
    [...row.cells].forEach((cell, i) => {
      if (!told(cell.textContent)) line(heads[i].textContent, cell.textContent);
    });
  }
  const cards = panel.appendChild(document.createElement('div'));
  cards.className = 'cards';
  const of = card => (card.dataset.nodes || '').split(' ').includes(String(id));
  for (const card of all('.card').filter(c => !panel.contains(c) && of(c)))
    cards.appendChild(card.cloneNode(true));
}

const view = svg && (() => {
  const full = svg.viewBox.baseVal, width = full.width, height = full.height;
  let x = 0, y = 0, scale = 1, drag = null, moved = false;
  const fingers = new Map();
  const size = () => [box.clientWidth, box.clientHeight];
  const apply = () => {
    const [w, h] = size();
    svg.setAttribute('viewBox', [x, y, w / scale, h / scale].join(' '));
  };
  const zoom = (factor, px, py) => {
    const [w, h] = size();
    px = px === undefined ? w / 2 : px;
    py = py === undefined ? h / 2 : py;
    const next = Math.min(4, Math.max(0.02, scale * factor));
    x += px / scale - px / next;
    y += py / scale - py / next;
    scale = next;
    apply();
  };
  const fit = whole => {
    const [w, h] = size();
    scale = Math.min(1, w / width, h / height);
    x = (width - w / scale) / 2;
    y = (height - h / scale) / 2;
    if (!whole && scale < 0.45) { // too small to read: the beginning
      scale = 0.8;
      x = -10;
      y = 0;
    }
    apply();
  };
  const center = rect => { // unless it can be seen and read where it is
    const [w, h] = size();
    const left = (rect.x.baseVal.value - x) * scale, top = (rect.y.baseVal.value - y) * scale;
    if (scale >= 0.45 && left >= 0 && top >= 0 && left + 136 * scale <= w && top + 32 * scale <= h)
      return;
    scale = Math.max(scale, 0.8);
    x = rect.x.baseVal.value + rect.width.baseVal.value / 2 - w / scale / 2;
    y = rect.y.baseVal.value + rect.height.baseVal.value / 2 - h / scale / 2;
    apply();
  };
  box.classList.add('live');
  svg.removeAttribute('width');
  svg.removeAttribute('height');
  box.addEventListener('wheel', e => {
    if (!e.ctrlKey && !e.metaKey) return;
    e.preventDefault();
    const r = box.getBoundingClientRect();
    zoom(Math.exp(-e.deltaY / 300), e.clientX - r.left, e.clientY - r.top);
  }, {passive: false});
  box.addEventListener('pointerdown', e => {
    fingers.set(e.pointerId, e);
    drag = e;
    moved = false;
  });
  box.addEventListener('pointermove', e => {
    const last = fingers.get(e.pointerId);
    if (!last) return;
    fingers.set(e.pointerId, e);
    if (Math.hypot(e.clientX - drag.clientX, e.clientY - drag.clientY) > 4) moved = true;
    if (fingers.size === 2) {
      const other = [...fingers.values()].find(f => f.pointerId !== e.pointerId);
      const away = p => Math.hypot(p.clientX - other.clientX, p.clientY - other.clientY);
      const r = box.getBoundingClientRect();
      zoom(away(e) / (away(last) || 1), other.clientX - r.left, other.clientY - r.top);
    } else if (moved) {
      x -= (e.clientX - last.clientX) / scale;
      y -= (e.clientY - last.clientY) / scale;
      apply();
    }
  });
  const up = e => fingers.delete(e.pointerId);
  window.addEventListener('pointerup', up);
  window.addEventListener('pointercancel', up);
  window.addEventListener('resize', apply);
  box.addEventListener('click', e => {
    const node = e.target.closest('.n');
    if (node && !moved) select(node.id.slice(1), false);
  });
  const trim = () => { // no room below a small graph
    box.style.height = Math.max(240, Math.min(box.clientHeight, height * scale + 16)) + 'px';
    fit(false);
  };
  return {zoom, fit, trim, center};
})();

if (svg) {
  const bar = document.createElement('div');
  bar.className = 'bar';
  box.before(bar);
  button(bar, '+', () => view.zoom(1.4));
  button(bar, '\u2212', () => view.zoom(1 / 1.4));
  button(bar, 'start', () => view.fit(false));
  button(bar, 'whole graph', () => view.fit(true));
  if (svg.dataset.most) button(bar, svg.dataset.jump, () => select(svg.dataset.most, true));
  if (svg.dataset.by) {
    const known = ['async', 'sync'].filter(by =>
      [1, 2, 3, 4, 5].some(k => svg.querySelector('.' + by[0] + k)));
    const modes = (known.length > 1 ? known : []).map(by => button(bar, by, b => {
      svg.dataset.by = by;
      modes.forEach(m => m.classList.toggle('on', m === b));
    }));
    modes[0]?.classList.add('on');
  }
  const hint = bar.appendChild(document.createElement('span'));
  hint.textContent = 'drag to move, Ctrl and wheel (or two fingers) to zoom, click a node';
  view.fit(false);
  view.trim();
  all('tr[data-node]').forEach(row => {
    row.onclick = () => {
      select(row.dataset.node, true);
      box.scrollIntoView({block: 'nearest'});
    };
  });
}
