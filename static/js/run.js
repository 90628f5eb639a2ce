// The run page: follows the log at the head, steps in place through the past.

import { announce, announceNews, isShortcut, typing } from './tools.js';
import { followRun } from './live.js';
import { fetchPage, fetchText, refresh } from './swap.js';

const PARTS = ['past', 'run-head', 'problem', 'stage', 'trio'];
const main = document.querySelector('[data-run]');

const centre = () => {
  const tape = document.querySelector('.tape');
  const here = tape?.querySelector('[aria-current]');
  if (here && tape.scrollWidth > tape.clientWidth)
    tape.scrollLeft = here.offsetLeft - (tape.clientWidth - here.offsetWidth) / 2;
};

// ── the tape and the list are listboxes: one stop for Tab each, the rest by arrows ──
const listOf = (element) => {
  if (element?.closest?.('.cplist')) return '.cplist';
  return element?.closest?.('.tape') ? '.tape' : '';
};

const focusCurrent = (list) => {
  const here =
    document.querySelector(`${list} [aria-current]`) ??
    document.querySelector('.tape [aria-current]');
  here?.focus({ preventScroll: list === '.tape' });
};

const rove = () => {
  for (const list of document.querySelectorAll('[role=listbox]')) {
    const options = [...list.querySelectorAll('a[role=option]')];
    const stop = options.find((option) => option.ariaCurrent) ?? options[0];
    for (const option of options) option.tabIndex = option === stop ? 0 : -1;
  }
};

let steps = 0;
const step = async (url, { push = true } = {}) => {
  const list = listOf(document.activeElement);
  const mine = ++steps;
  const page = await refresh(url, PARTS);
  // A step that was overtaken has no answer any more: loading its address would undo the newer one.
  if (mine !== steps) return;
  if (!page) {
    location.assign(url);
    return;
  }
  if (push) history.pushState(null, '', url);
  document.title = page.title;
  rove();
  centre();
  if (list) focusCurrent(list);
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

// ── keys ──
const NEAR = { ArrowLeft: 'prev', ArrowRight: 'next', Home: 'first', End: 'last' };
const NEAR_IN_LIST = { ArrowUp: 'next', ArrowDown: 'prev' };
const LETTERS = { l: 'now', '[': 'prev-change', ']': 'next-change' };
const FAR = { ArrowLeft: -10, ArrowRight: 10 };
const FARTHER = { PageUp: -100, PageDown: 100 };

const follow = (name) => {
  const link = document.querySelector(`a[data-step="${name}"]`);
  if (link) step(link.href);
  return Boolean(link);
};

// So many checkpoints on or back, as far as there are any. The newest has no number in its address.
const leap = (by) => {
  const form = document.querySelector('form[data-goto]');
  const here = Number(form.elements.at.value);
  const newest = Number(form.dataset.newest);
  const target = Math.min(newest, Math.max(0, here + by));
  if (target === here) return true;
  const url = new URL(location.href);
  url.searchParams.set('at', target);
  if (target === newest) url.searchParams.delete('at');
  step(url.href);
  return true;
};

const openTab = (number) => {
  const tab = document.querySelectorAll('#trio .subtabs a')[number - 1];
  if (tab) step(tab.href);
  return Boolean(tab);
};

const onLetter = (key) => {
  if (LETTERS[key]) return follow(LETTERS[key]);
  if (key === 'f') {
    document.querySelector('a[data-go-on]')?.click();
    return true;
  }
  if (key === 'o') {
    document.getElementById('goto')?.select();
    return true;
  }
  return key >= '1' && key <= '6' && openTab(Number(key));
};

const onArrow = (event, list) => {
  if (event.shiftKey && FAR[event.key]) return leap(FAR[event.key]);
  if (list && FARTHER[event.key]) return leap(FARTHER[event.key]);
  if (list === '.cplist' && NEAR_IN_LIST[event.key]) return follow(NEAR_IN_LIST[event.key]);
  return Boolean(NEAR[event.key]) && follow(NEAR[event.key]);
};

document.addEventListener('keydown', (event) => {
  const list = listOf(event.target);
  // Arrows belong to a listbox that has focus, also where single keys are switched off.
  if (!isShortcut(event) && !(list && !typing(event))) return;
  const done = onArrow(event, list) || (isShortcut(event) && onLetter(event.key.toLowerCase()));
  if (done) event.preventDefault();
});

// A value for which the page had no room is loaded when it is opened; without scripts its link
// leads there.
document.addEventListener(
  'toggle',
  async ({ target }) => {
    if (!target.open || !target.dataset?.load) return;
    const text = await fetchText(target.dataset.load).catch(() => null);
    if (text === null) return;
    const pre = target.querySelector('pre');
    pre.textContent = text;
    pre.hidden = false;
    target.querySelector('a').hidden = true;
    delete target.dataset.load;
  },
  true,
);

const status = () => document.querySelector('#run-head .pill')?.textContent.trim();

followRun(main.dataset.run, Number(main.dataset.seq), async (news) => {
  const before = status();
  if (!(await refresh(location.href, PARTS))) return false;
  if (status() !== before) announceNews(`The run is now: ${status()}.`);
  if (!new URLSearchParams(location.search).has('at') && news.length) centre();
  return true;
});
rove();
centre();

// What a node reports is no line of the log: while the run is running, the row of the list has it.
setInterval(async () => {
  if (document.hidden || status() !== 'Running') return;
  const page = await fetchPage(`${main.dataset.rows}?id=${main.dataset.run}`).catch(() => null);
  const said = document.querySelector('#run-head [data-progress]');
  const row = page?.querySelector('td.at .sub');
  if (said && row) said.textContent = row.textContent;
}, 2000);
