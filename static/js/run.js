// The run page: follows the log at the head, steps in place through the past.

import { announce, isShortcut } from './tools.js';
import { followRun } from './live.js';
import { fetchPage, refresh } from './swap.js';

const PARTS = ['past', 'run-head', 'problem', 'stage', 'trio'];
const main = document.querySelector('[data-run]');

const centre = () => {
  const tape = document.querySelector('.tape');
  const here = tape?.querySelector('[aria-current]');
  if (here && tape.scrollWidth > tape.clientWidth) tape.scrollLeft = here.offsetLeft - (tape.clientWidth - here.offsetWidth) / 2;
};

const step = async (url, { push = true } = {}) => {
  const page = await refresh(url, PARTS);
  if (!page) { location.assign(url); return; }
  if (push) history.pushState(null, '', url);
  document.title = page.title;
  centre();
  const here = document.querySelector('.tape [aria-current]');
  if (here) announce(here.getAttribute('aria-label'));
};

document.addEventListener('click', (event) => {
  const link = event.target.closest('a[data-step]');
  if (!link || event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
  event.preventDefault();
  step(link.href);
});

addEventListener('popstate', () => step(location.href, { push: false }));

document.addEventListener('submit', (event) => {
  const form = event.target.closest('form[data-goto]');
  if (!form) return;
  event.preventDefault();
  step(`${form.action}?${new URLSearchParams(new FormData(form))}`);
});

const KEYS = { ArrowLeft: 'prev', ArrowRight: 'next', Home: 'first', End: 'last', l: 'now', L: 'now', '[': 'prev-change', ']': 'next-change' };
document.addEventListener('keydown', (event) => {
  const name = KEYS[event.key];
  if (!name || !isShortcut(event)) return;
  const link = document.querySelector(`a[data-step="${name}"]`);
  if (link) { event.preventDefault(); step(link.href); }
});

const status = () => document.querySelector('#run-head .pill')?.textContent.trim();

followRun(main.dataset.run, Number(main.dataset.seq), async (news) => {
  const before = status();
  if (!await refresh(location.href, PARTS)) return false;
  if (status() !== before) announce(`The run is now: ${status()}.`);
  if (!new URLSearchParams(location.search).has('at') && news.length) centre();
  return true;
});
centre();

// What a node reports is no line of the log: while the run is running, the row of the list has it.
setInterval(async () => {
  if (document.hidden || status() !== 'Running') return;
  const page = await fetchPage(`${main.dataset.rows}?id=${main.dataset.run}`).catch(() => null);
  const said = document.querySelector('#run-head [data-progress]');
  const row = page?.querySelector('td.at .sub');
  if (said && row) said.textContent = row.textContent;
}, 2000);
