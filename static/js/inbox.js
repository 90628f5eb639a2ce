// The inbox: what is new waits behind a button until its reader wants it, what is settled says so
// and stays in its place. Nothing moves under the pointer; the server decides what this person may
// see of each row.

import { announceNews } from './tools.js';
import { latestInbox, untilShown } from './live.js';
import { fetchPage, swapParts } from './swap.js';

const panel = () => document.getElementById('inbox');
const rows = (page) => [...page.querySelectorAll('#inbox li[data-ask]')];

// Those that are no longer in this folder: how they stand now, or gone where they may not be seen
// any more.
const settle = async (left) => {
  const old = left.slice(0, 50); // as many as the server tells of at once
  const query = new URLSearchParams(old.map((row) => ['id', row.dataset.ask]));
  const page = await fetchPage(`${panel().dataset.rows}?${query}`).catch(() => null);
  if (!page) return false;
  for (const row of old) {
    const fresh = page.getElementById(row.id);
    if (!fresh) {
      row.remove();
      continue;
    }
    // Still open: a more urgent one took its place on this page of the list.
    if ('open' in fresh.dataset) {
      if (!row.contains(document.activeElement)) row.replaceWith(fresh);
      continue;
    }
    fresh.classList.add('gone');
    fresh.classList.remove('hot', 'warm');
    if (!row.contains(document.activeElement)) row.replaceWith(fresh);
    else row.classList.add('gone');
  }
  return true;
};

// How many reviews are new here; they stand where they belong once they are shown.
const offer = (count) => {
  const note = document.getElementById('new-reviews');
  note.hidden = !count;
  if (!count) return;
  const text = count === 1 ? '1 new review.' : `${count} new reviews.`;
  const said = note.querySelector('span');
  if (said.textContent === text) return;
  said.textContent = text;
  announceNews('New reviews wait above the list.');
};

const showNew = async () => {
  const page = await fetchPage(location.href).catch(() => null);
  if (!page) return;
  const known = new Set(rows(document).map((row) => row.id));
  swapParts(page, ['folders', 'inbox']);
  const first = rows(document).find((row) => !known.has(row.id));
  first?.querySelector('a').focus();
};

const update = untilShown(async () => {
  const page = await fetchPage(location.href).catch(() => null);
  if (!page) return false;
  document.title = page.title;
  panel().dataset.mark = page.getElementById('inbox').dataset.mark;
  swapParts(page, ['folders']);
  const total = page.querySelector('#inbox .tfoot span');
  panel()
    .querySelector('.tfoot span')
    ?.replaceChildren(...(total?.childNodes ?? ['Nothing waits here any more.']));
  const list = panel().querySelector('ul');
  const fresh = rows(page);
  const sample = page.querySelector('#inbox ul');
  if (list && sample) list.className = sample.className;
  if (!list) {
    if (fresh.length) {
      swapParts(page, ['inbox']);
      announceNews('A review waits for you.');
    }
    return true;
  }
  const still = new Set(fresh.map((row) => row.id));
  const left = rows(document).filter(
    (row) => !still.has(row.id) && !row.classList.contains('gone'),
  );
  let added = 0;
  for (const row of fresh) {
    const old = document.getElementById(row.id);
    if (!old) added += 1;
    else if (!old.contains(document.activeElement)) old.replaceWith(row);
  }
  const settled = !left.length || (await settle(left));
  offer(added);
  return settled;
});

const hear = ({ waiting, more, mark }) => {
  const count = waiting ? `(${waiting}${more ? '+' : ''}) ` : '';
  document.title = count + document.title.replace(/^\(\d+\+?\) /, '');
  if (mark !== panel().dataset.mark) update();
};

document.addEventListener('click', (event) => {
  if (event.target.closest('#new-reviews button')) showNew();
});
document.addEventListener('countersign:inbox', ({ detail }) => hear(detail));
if (latestInbox()) hear(latestInbox());
document.addEventListener('countersign:poll', update);
