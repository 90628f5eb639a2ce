// The comparison of two runs: from one difference to the next, and the two swapped.

import { announce, isShortcut } from './tools.js';

const rows = [...document.querySelectorAll('[data-test="difference"]')];
let at = -1;

const go = (by) => {
  if (!rows.length) return;
  at = at < 0 && by < 0 ? rows.length - 1 : Math.min(rows.length - 1, Math.max(0, at + by));
  rows[at].focus();
  announce(`Difference ${at + 1} of ${rows.length}.`);
};

document.addEventListener('click', (event) => {
  const button = event.target.closest('[data-difference]');
  if (button) go(Number(button.dataset.difference));
});

document.addEventListener('keydown', (event) => {
  if (!isShortcut(event)) return;
  const key = event.key.toLowerCase();
  if (key === 'n') go(1);
  else if (key === 'p') go(-1);
  else if (key === 's') document.querySelector('[data-swap]')?.click();
});
