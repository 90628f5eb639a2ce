// The list of runs: rows move in place, new runs wait behind a line.

import { followRows } from './live.js';
import { fetchPage } from './swap.js';

const table = document.querySelector('table[data-rows]');
const rows = () => [...document.querySelectorAll('tr[data-run]')];

const update = async (ids) => {
  const query = new URLSearchParams(ids.map((id) => ['id', id]));
  const page = await fetchPage(`${table.dataset.rows}?${query}`).catch(() => null);
  if (!page) return false;
  for (const fresh of page.querySelectorAll('tr[data-run]')) {
    const old = document.getElementById(fresh.id);
    // A row that somebody is in is left alone until he has left it.
    if (old && !old.contains(document.activeElement)) old.replaceWith(fresh);
  }
  return true;
};

if (table) {
  followRows(() => Object.fromEntries(rows().map((row) => [row.dataset.run, Number(row.dataset.seq)])), update);
  // What nodes report is no line of the log: rows that are running are asked again.
  setInterval(() => {
    const running = rows().filter((row) => row.querySelector('.pill.run')).map((row) => row.dataset.run);
    if (!document.hidden && running.length) update(running);
  }, 2000);
  const line = document.getElementById('newrows');
  if (line) {
    setInterval(async () => {
      if (document.hidden) return;
      const answer = await fetch(line.dataset.url, { headers: { 'X-Fragment': '1' } }).catch(() => null);
      if (!answer?.ok) return;
      const { count, text } = await answer.json();
      line.hidden = count === 0;
      line.querySelector('a span').textContent = text;
    }, 10000);
  }
}
