// The inbox: what is new waits behind a button until its reader wants it, what is settled says so
// and stays in its place. Nothing moves under the pointer; the server decides what this person may
// see of each row.

import { announce, announceNews, isShortcut } from './tools.js';
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
    // Still open: a more urgent one took its place on this page of the list. The other folders lose
    // what does not belong there any more.
    if ('open' in fresh.dataset) {
      if (panel().dataset.folder !== 'mine') {
        row.remove();
        continue;
      }
      if (!row.contains(document.activeElement)) row.replaceWith(fresh);
      continue;
    }
    fresh.classList.add('gone');
    delete fresh.dataset.digest;
    fresh.classList.remove('hot', 'warm');
    if (!row.contains(document.activeElement)) row.replaceWith(fresh);
    else {
      row.classList.add('gone');
      delete row.dataset.digest;
    }
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
      announceNews(
        panel().dataset.folder === 'mine' ? 'A review waits for you.' : 'A review was added.',
      );
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

// ── keys: J and K move from review to review, T takes the one with focus, H hands it over ──
const linkOf = (row) => row?.querySelector('h3 a');
const current = () => document.activeElement?.closest?.('#inbox li[data-ask]');

const move = (by) => {
  const all = rows(document);
  const here = all.indexOf(current());
  const next = here < 0 ? 0 : Math.min(all.length - 1, Math.max(0, here + by));
  linkOf(all[next])?.focus();
};

// The server answers with the page of the review, on which its sentence stands.
const post = async (row, act) => {
  const body = new URLSearchParams({ act, request: row.dataset.ask });
  const token = document.querySelector('[name=csrfmiddlewaretoken]').value;
  body.append('csrfmiddlewaretoken', token);
  const answer = await fetch(row.dataset.claim, { method: 'POST', body });
  const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
  return page.querySelector('[data-test=note]')?.textContent ?? 'Nothing was changed.';
};

const renew = async (id) => {
  const page = await fetchPage(`${panel().dataset.rows}?id=${id}`).catch(() => null);
  const old = document.getElementById(`ask-${id}`);
  const fresh = page?.getElementById(`ask-${id}`);
  if (!old || !fresh) return;
  const hadFocus = old.contains(document.activeElement);
  old.replaceWith(fresh);
  if (hadFocus) linkOf(fresh).focus();
};

const take = async () => {
  const row = current();
  if (!row || !('open' in row.dataset)) return;
  const act = 'mine' in row.dataset ? 'release' : 'claim';
  const sentence = await post(row, act).catch(() => 'The server does not answer.');
  await renew(row.dataset.ask);
  announce(sentence);
};

const handOver = () => {
  const row = current();
  if (!row || !('open' in row.dataset)) return;
  if ('mine' in row.dataset) location.href = `${linkOf(row).href}#to-${row.dataset.ask}`;
  else announce('Take it first: press T.');
};

const KEYS = { j: () => move(1), k: () => move(-1), t: take, h: handOver };
document.addEventListener('keydown', (event) => {
  const act = KEYS[event.key.toLowerCase()];
  if (act && !event.repeat && isShortcut(event)) act();
});

document.addEventListener('click', (event) => {
  if (event.target.closest('#new-reviews button')) showNew();
});
document.addEventListener('countersign:inbox', ({ detail }) => hear(detail));
if (latestInbox()) hear(latestInbox());
document.addEventListener('countersign:poll', update);
