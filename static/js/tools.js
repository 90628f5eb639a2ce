// What several scripts use. Nothing happens when it is loaded: only scripts that a page names do
// anything by themselves, for with hashed file names a module that is both named and imported would
// run twice.

export const announce = (text) => {
  document.getElementById('announce').textContent = text.replace(/\s+/g, ' ').trim();
};

// What others did is spoken at most once in five seconds; what comes meanwhile is spoken together.
// What a person does is answered at once, by `announce`.
const QUIET = 5000;
const news = [];
let timer = 0;

const speak = () => {
  timer = 0;
  if (!news.length) return;
  announce(news.splice(0).join(' '));
  timer = setTimeout(speak, QUIET);
};

export const announceNews = (text) => {
  if (!news.includes(text)) news.push(text);
  if (!timer) speak();
};

export const typing = (event) =>
  event.metaKey ||
  event.ctrlKey ||
  event.altKey ||
  Boolean(
    (event.composedPath()[0] ?? event.target).closest?.(
      'input:not([type=radio]):not([type=checkbox]),textarea,select,[contenteditable]',
    ),
  );

// The server sets `data-shortcuts="off"` for who switched them off under Account; every handler of
// keys asks here.
export const shortcutsOn = () => document.body.dataset.shortcuts !== 'off';

// Whether a key that was pressed is a shortcut: none while somebody types, holds a modifier, or has
// a dialog open.
export const isShortcut = (event) =>
  shortcutsOn() && !typing(event) && !document.querySelector('dialog[open]');
