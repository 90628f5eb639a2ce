// Every page: what waits and whether a worker is there, live; ages that tick; theme, menus, search
// by key, copying.

import { isShortcut } from './tools.js';
import { followInbox } from './live.js';
import { startTicking } from './ticks.js';

const root = document.documentElement;

const setTheme = (theme) => {
  if (theme === 'auto') delete root.dataset.theme;
  else root.dataset.theme = theme;
  document.querySelector('meta[name=color-scheme]').content =
    theme === 'auto' ? 'light dark' : theme;
  for (const button of document.querySelectorAll('[data-theme-set]')) {
    button.setAttribute('aria-pressed', String(button.dataset.themeSet === theme));
  }
};

const sendTheme = (form, theme) => {
  const body = new FormData(form);
  body.set('theme', theme);
  fetch(form.action, { method: 'POST', body, headers: { 'X-Fragment': '1' } }).catch(() =>
    form.requestSubmit(),
  );
};

const copy = async (button) => {
  await navigator.clipboard.writeText(button.dataset.copy);
  const toast = document.createElement('div');
  toast.className = 'toast';
  toast.setAttribute('role', 'status');
  toast.textContent = 'Copied';
  document.body.append(toast);
  setTimeout(() => toast.remove(), 1600);
};

// ── shortcuts of every page ──
const findRun = () => document.getElementById('find')?.focus();
const showKeys = () => document.getElementById('keys')?.showModal();
const openNext = () => document.querySelector('[data-next-review]')?.click();
const SHORTCUTS = { '/': findRun, '?': showKeys, n: openNext };

// G and a letter lead to another page, where the bar leads there too.
const PLACES = { r: '/runs/', v: '/reviews/', g: '/graphs/', a: '/audit/' };
const PATIENCE = 1500;
let lastG = -PATIENCE;

const goTo = (place) => {
  for (const link of document.querySelectorAll('.bar .nav a')) {
    if (link.pathname.endsWith(place)) link.click();
  }
};

const shortcut = (event) => {
  const place = PLACES[event.key.toLowerCase()];
  if (place && event.timeStamp - lastG < PATIENCE) {
    lastG = -PATIENCE;
    event.preventDefault();
    event.stopImmediatePropagation();
    goTo(place);
    return;
  }
  if (event.key.toLowerCase() === 'g') lastG = event.timeStamp;
  const act = SHORTCUTS[event.key];
  if (act) {
    event.preventDefault();
    act();
  }
};

document.addEventListener('click', (event) => {
  if (event.target.closest('[data-show-keys]')) showKeys();
  if (event.target.closest('[data-close-keys]')) document.getElementById('keys').close();
  for (const menu of document.querySelectorAll('details.more[open]'))
    if (!menu.contains(event.target)) menu.open = false;
  const theme = event.target.closest('[data-theme-set]');
  if (theme) {
    event.preventDefault();
    setTheme(theme.dataset.themeSet);
    sendTheme(theme.form, theme.dataset.themeSet);
  }
  const copied = event.target.closest('[data-copy]');
  if (copied) copy(copied);
});

document.addEventListener('keydown', (event) => {
  if (event.key === 'Escape') {
    for (const menu of document.querySelectorAll('details.more[open]')) {
      menu.open = false;
      menu.querySelector('summary').focus();
    }
  }
  if (isShortcut(event)) shortcut(event);
});

// ── what the server says of itself and of this person ──
const showNotices = ({ notices }) => {
  for (const count of document.querySelectorAll('[data-notices]')) {
    const number = notices > 99 ? '99+' : String(notices);
    count.textContent = number;
    count.hidden = !notices;
    const label = notices ? `Notices, ${number} unread` : 'Notices';
    count.parentElement.setAttribute('aria-label', label);
  }
};

// Without a socket the number is read from the page of notices. Nothing happens where that leads
// elsewhere, as to the sign-in: what is typed on this page stays.
const POLL_PATIENCE = 9000;

const pollNotices = async () => {
  const answer = await fetch(document.querySelector('.bell').href, {
    headers: { 'X-Fragment': '1' },
    redirect: 'error',
    signal: AbortSignal.timeout(POLL_PATIENCE),
  }).catch(() => null);
  if (!answer?.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
  const unread = page.querySelector('[data-unread]');
  if (unread) showNotices({ notices: Number(unread.dataset.unread) });
};

const showWaiting = ({ waiting, more }) => {
  for (const count of document.querySelectorAll('[data-waiting]')) {
    count.textContent = `${waiting}${more ? '+' : ''}`;
    if (count.dataset.waiting !== 'always') count.hidden = !waiting;
  }
  document
    .querySelector('.mrev')
    ?.setAttribute('aria-label', `Reviews ${waiting}, waiting for you`);
};

const showSilence = (silence) => {
  const strip = document.getElementById('no-worker');
  if (!strip) return;
  const since = strip.querySelector('[data-since]');
  since.hidden = !silence?.since;
  if (silence?.since) {
    const time = since.querySelector('time');
    time.dateTime = silence.since;
    time.textContent = silence.text;
  }
  strip.hidden = !silence;
};

startTicking();
if (document.querySelector('[data-inbox]')) {
  followInbox(
    (news) => {
      showWaiting(news);
      showNotices(news);
      showSilence(news.silence);
      document.dispatchEvent(new CustomEvent('countersign:inbox', { detail: news }));
    },
    () => {
      pollNotices().catch(() => null);
      document.dispatchEvent(new CustomEvent('countersign:poll'));
    },
  );
}
