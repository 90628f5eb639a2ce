// The review page: what is chosen shows in meter, button and consequences; keys; and what changes while one reads.

import { announce, typing } from './tools.js';
import { followRun } from './live.js';
import { fetchPage, swapParts } from './swap.js';

const form = document.getElementById('review');
const region = document.querySelector('[data-writes]');
const slips = () => [...document.querySelectorAll('.slip[data-write]')];
const open = () => slips().filter((slip) => slip.querySelector('.trip:not([disabled])'));
const verdict = (slip) => slip.querySelector('.trip:not([disabled]) input:checked')?.value ?? '';
const plural = (n, one, many) => `${n} ${n === 1 ? one : many}`;
const WORDS = { approve: 'Approved', edit: 'Edited', reject: 'Rejected' };
const CELL = { approve: 'y', edit: 'e', reject: 'n' };
let signing = false;

// ── what is chosen ──
const tally = () => {
  const all = open();
  const chosen = all.map(verdict);
  const done = chosen.filter(Boolean).length;
  const count = (word) => chosen.filter((v) => v === word).length;
  return { all, chosen, done, left: all.length - done, approve: count('approve'), edit: count('edit'), reject: count('reject') };
};

const paint = () => {
  const t = tally();
  if (!form || !t.all.length) return;
  const parts = [t.approve && `${t.approve} approved`, t.edit && `${t.edit} edited`, t.reject && `${t.reject} rejected`, t.left && `${t.left} left`];
  const summary = parts.filter(Boolean).join(', ');
  document.getElementById('sum').textContent = `${t.done} of ${t.all.length} decided`;
  document.getElementById('sum-more').textContent = summary;
  document.getElementById('meter').setAttribute('aria-label', summary);
  document.querySelectorAll('#meter i').forEach((cell, n) => {
    cell.className = CELL[t.chosen[n]] ?? '';
    cell.hidden = n >= t.all.length;
  });
  paintList(t);
  paintButtons(t);
  paintNext(t);
};

const paintList = (t) => {
  // What somebody else has settled carries no choice of this person any more.
  document.querySelectorAll('.slip.lost').forEach((slip) => {
    document.querySelectorAll(`.wlist a[href="#${slip.id}"] [data-for]`).forEach((icon) => icon.setAttribute('hidden', ''));
  });
  t.all.forEach((slip, n) => {
    const mark = document.querySelector(`.wlist a[href="#${slip.id}"] .st`);
    if (!mark) return;
    mark.className = `st ${t.chosen[n] === 'reject' ? 'n' : t.chosen[n] ? 'y' : ''}`;
    mark.querySelectorAll('[data-for]').forEach((icon) => { icon.toggleAttribute('hidden', icon.dataset.for !== t.chosen[n]); });
  });
  const left = document.getElementById('left');
  if (left) left.textContent = t.left ? `${t.left} left` : 'all decided';
  document.title = (t.left ? `(${t.left} left) ` : '') + document.title.replace(/^\(\d+ left\) /, '');
};

const paintButtons = (t) => {
  const sign = document.getElementById('sign');
  const some = document.getElementById('sign-some');
  sign.textContent = t.left ? `Decide ${t.left} more to sign` : `Sign ${plural(t.done, 'decision', 'decisions')}`;
  sign.setAttribute('aria-disabled', String(t.left > 0));
  some.hidden = !(t.left && t.done);
  some.textContent = `Sign ${t.done} of ${t.all.length} now`;
  document.getElementById('next-open').hidden = !t.left;
};

// One outcome a request: approved, rejected, partial; none while something is undecided.
const outcome = (request) => {
  const mine = open().filter((slip) => slip.dataset.request === request).map(verdict);
  if (!mine.length || mine.includes('')) return '';
  const rejected = mine.filter((v) => v === 'reject').length;
  return rejected === 0 ? 'approved' : rejected === mine.length ? 'rejected' : 'partial';
};

const paintNext = (t) => {
  document.getElementById('nothing-yet')?.toggleAttribute('hidden', !t.left);
  for (const box of document.querySelectorAll('[data-outcomes]')) {
    const now = outcome(box.dataset.outcomes);
    for (const part of box.querySelectorAll('[data-outcome]')) part.toggleAttribute('hidden', part.dataset.outcome !== now);
    box.toggleAttribute('hidden', !now);
  }
};

// ── moving about ──
const current = () => document.querySelector('.slip.cur') ?? slips()[0];
const go = (slip) => {
  if (!slip) return;
  slips().forEach((s) => s.classList.toggle('cur', s === slip));
  document.querySelectorAll('.wlist a').forEach((a) => {
    if (a.hash === `#${slip.id}`) a.setAttribute('aria-current', 'true'); else a.removeAttribute('aria-current');
  });
  slip.querySelector('h3').focus({ preventScroll: true });
  slip.scrollIntoView({ block: 'nearest' });
};
const beside = (by) => slips()[Math.min(slips().length - 1, Math.max(0, slips().indexOf(current()) + by))];
const undecided = (slip) => slip.querySelector('.trip:not([disabled])') && !verdict(slip);
const nextOpen = () => {
  const all = slips();
  const from = all.indexOf(current());
  return [...all.slice(from + 1), ...all.slice(0, from + 1)].find(undecided);
};
const firstOpen = () => slips().find(undecided);

const choose = (letter) => {
  const slip = current();
  const input = slip?.querySelector(`.trip input[data-do=${letter}]`);
  if (!input) return;
  input.checked = true;
  input.dispatchEvent(new Event('change', { bubbles: true }));
};

const undo = () => {
  const input = current()?.querySelector('.trip input:checked');
  if (!input) return;
  input.checked = false;
  paint();
  announce('Undone.');
};

const KEYS = { j: () => go(beside(1)), k: () => go(beside(-1)), n: () => go(nextOpen()), z: undo, a: () => choose('a'), e: () => choose('e'), r: () => choose('r') };

document.addEventListener('keydown', (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key === 'Enter') {
    const sign = document.getElementById('sign');
    if (sign && sign.getAttribute('aria-disabled') !== 'true') { event.preventDefault(); form.requestSubmit(sign); }
    return;
  }
  if (typing(event) || !region?.contains(event.target)) return;
  const act = KEYS[event.key.toLowerCase()];
  if (act) { event.preventDefault(); act(); }
});

region?.addEventListener('change', (event) => {
  const slip = event.target.closest('.slip');
  if (!event.target.matches('.trip input') || !slip) return;
  paint();
  const all = slips();
  announce(`${WORDS[event.target.value]}, draft. Write ${all.indexOf(slip) + 1} of ${all.length}.`);
});
region?.addEventListener('click', (event) => {
  const slip = event.target.closest('.slip');
  if (slip && !slip.classList.contains('cur')) {
    slips().forEach((s) => s.classList.toggle('cur', s === slip));
  }
  if (event.target.closest('[data-newer]')) showNewer(slip);
});

// A form that is drawn only when somebody asks for it.
region?.addEventListener('click', async (event) => {
  const link = event.target.closest('a[data-edit]');
  if (!link) return;
  event.preventDefault();
  const page = await fetchPage(link.href).catch(() => null);
  const id = link.closest('.slip').id;
  const fresh = page?.querySelector(`#${id} .editor`);
  if (!fresh) { location.assign(link.href); return; }
  document.querySelector(`#${id} .editor`).replaceWith(fresh);
  fresh.querySelector('input,textarea,select')?.focus();
});

// Pages within a write: its long lists and letters, its raw JSON.
region?.addEventListener('click', async (event) => {
  const link = event.target.closest('a[data-part]');
  if (!link) return;
  event.preventDefault();
  const page = await fetchPage(link.href).catch(() => null);
  const fresh = page?.getElementById(link.dataset.part);
  const old = document.getElementById(link.dataset.part);
  if (!fresh || !old) { location.assign(link.href); return; }
  old.replaceWith(fresh);
  fresh.tabIndex = -1;
  fresh.focus({ preventScroll: true });
  announce(fresh.querySelector('.pages span')?.textContent ?? '');
});

// ── signing ──
form?.addEventListener('submit', (event) => {
  const button = event.submitter;
  if (signing) { event.preventDefault(); return; }
  if (button?.getAttribute('aria-disabled') === 'true') {
    event.preventDefault();
    go(firstOpen());
    announce(document.getElementById('sign').textContent);
    return;
  }
  signing = true;
  document.getElementById('sign').textContent = 'Signing…';
});
addEventListener('pageshow', () => { signing = false; paint(); });
document.getElementById('next-open')?.addEventListener('click', () => go(nextOpen()));

// ── what changes while one reads ──
const newer = new Map();
const touched = (slip) => verdict(slip) || slip.contains(document.activeElement) || slip.matches(':hover');

// Somebody else has settled it: who and when stands in its place, and what was chosen here is not sent.
const lose = (slip, line) => {
  const drafted = verdict(slip);
  const trip = slip.querySelector('.trip');
  if (trip) trip.disabled = true;
  slip.querySelectorAll('input[type=hidden][name=write]').forEach((input) => { input.disabled = true; });
  const said = document.createElement('strong');
  said.textContent = drafted ? `${line} Your draft was not sent.` : line;
  slip.querySelector('.changed [data-what]').replaceChildren(said);
  slip.querySelector('[data-newer]').textContent = 'Show what was decided';
  slip.classList.add('lost');
  return said.textContent;
};

const showNewer = (slip) => {
  const fresh = newer.get(slip.id);
  if (!fresh) return;
  newer.delete(slip.id);
  slip.replaceWith(fresh);
  paint();
  go(fresh);
};

const merge = (page) => {
  let changed = 0;
  let lost = '';
  for (const fresh of page.querySelectorAll('.slip[data-write]')) {
    const old = document.querySelector(`.slip[data-write="${fresh.dataset.write}"]`);
    if (!old || old.dataset.version === fresh.dataset.version) continue;
    changed += 1;
    fresh.id = old.id;
    if (touched(old)) {
      newer.set(fresh.id, fresh);
      if (fresh.dataset.settled && old.querySelector('.trip:not([disabled])')) lost = lose(old, fresh.dataset.settled);
      old.querySelector('.changed')?.removeAttribute('hidden');
    } else {
      old.replaceWith(fresh);
    }
  }
  swapParts(page, ['signatures', 'gone', 'review-head']);
  if (!page.getElementById('review') && form) document.querySelectorAll('.trip,.why,.editor,#foot').forEach((e) => e.setAttribute('hidden', ''));
  if (changed) announce(changed > 1 ? `${changed} writes changed.` : lost || 'A write changed.');
  paint();
};

const main = document.querySelector('[data-run]');
if (main) {
  followRun(main.dataset.run, Number(main.dataset.seq), async () => {
    const page = await fetchPage(main.dataset.page).catch(() => null);
    if (page) merge(page);
  });
}
paint();
