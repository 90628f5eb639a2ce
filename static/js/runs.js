// The list of runs: rows move in place, new runs wait behind a line, and chosen rows can be
// compared.

import { announce, isShortcut } from './tools.js';
import { followRows } from './live.js';
import { fetchPage } from './swap.js';

const MOST_COMPARED = 3;
const table = document.querySelector('table[data-rows]');
const rows = () => [...document.querySelectorAll('tr[data-run]')];

// ── choosing rows ──
const boxes = () => [...document.querySelectorAll('input[data-select]')];
const chosen = () =>
  boxes()
    .filter((box) => box.checked)
    .map((box) => box.value);

const showChosen = () => {
  const strip = document.getElementById('chosen');
  if (!strip) return;
  const ids = chosen();
  const enough = ids.length >= 2 && ids.length <= MOST_COMPARED;
  const link = strip.querySelector('[data-compare]');
  strip.hidden = ids.length === 0;
  strip.querySelector('span').textContent = `${ids.length} selected`;
  strip.querySelector('[data-why]').hidden = enough;
  link.hidden = !enough;
  const query = new URLSearchParams(ids.map((id, n) => ['abc'[n] ?? 'more', id]));
  link.search = query.toString();
};

const unselect = () => {
  for (const box of boxes()) box.checked = false;
  showChosen();
};

document.addEventListener('change', (event) => {
  if (event.target.matches('input[data-select]')) showChosen();
});
document.addEventListener('click', (event) => {
  if (event.target.closest('[data-unselect]')) unselect();
});

// ── rows that move ──
const update = async (ids) => {
  const query = new URLSearchParams(ids.map((id) => ['id', id]));
  const page = await fetchPage(`${table.dataset.rows}?${query}`).catch(() => null);
  if (!page) return false;
  for (const fresh of page.querySelectorAll('tr[data-run]')) {
    const old = document.getElementById(fresh.id);
    // A row that somebody is in is left alone until he has left it.
    if (!old || old.contains(document.activeElement)) continue;
    fresh.querySelector('[data-select]').checked = old.querySelector('[data-select]').checked;
    old.replaceWith(fresh);
  }
  return true;
};

// ── keys: J and K move from run to run, X chooses the one with focus ──
const linkOf = (row) => row?.querySelector('a.rt');
const current = () => document.activeElement?.closest?.('tr[data-run]');

const move = (by) => {
  const all = rows();
  const here = all.indexOf(current());
  const next = here < 0 ? 0 : Math.min(all.length - 1, Math.max(0, here + by));
  linkOf(all[next])?.focus();
};

const choose = () => {
  const box = current()?.querySelector('[data-select]');
  if (!box) return;
  box.checked = !box.checked;
  showChosen();
  announce(`${chosen().length} selected.`);
};

const KEYS = { j: () => move(1), k: () => move(-1), x: choose };
document.addEventListener('keydown', (event) => {
  const act = KEYS[event.key.toLowerCase()];
  if (act && isShortcut(event)) act();
});

if (table) {
  followRows(
    () => Object.fromEntries(rows().map((row) => [row.dataset.run, Number(row.dataset.seq)])),
    update,
  );
  // What nodes report is no line of the log: rows that are running are asked again.
  setInterval(() => {
    const running = rows()
      .filter((row) => row.querySelector('.pill.run'))
      .map((row) => row.dataset.run);
    if (!document.hidden && running.length) update(running);
  }, 2000);
  const line = document.getElementById('newrows');
  if (line) {
    setInterval(async () => {
      if (document.hidden) return;
      const answer = await fetch(line.dataset.url, { headers: { 'X-Fragment': '1' } }).catch(
        () => null,
      );
      if (!answer?.ok) return;
      const { count, text } = await answer.json();
      line.hidden = count === 0;
      line.querySelector('a span').textContent = text;
    }, 10000);
  }
  showChosen();
}
