// Going on from a checkpoint: the plan follows what is typed, after a pause of 300 ms. The server
// checks; nothing is done.

import { announce } from './tools.js';
import { editInPlace } from './json_editor.js';
import { redrawn } from './redraw.js';
import { swapParts } from './swap.js';

const PAUSE = 300;
const form = document.getElementById('go-on');
let timer = 0;
let turn = 0;

// The editor is large: it is loaded once somebody opens the JSON.
const editJson = () => {
  const area = document.getElementById('json');
  if (area) editInPlace(area, document.getElementById('typed').dataset.editor);
};

// While a word is searched, only the channels in which it stands are left, and a few of them are
// opened.
const MOST_OPENED = 3;
const showFound = () => {
  const word = document.getElementById('find-state')?.value.trim();
  const links = [...document.querySelectorAll('#found a[data-channel]')];
  const found = new Set(links.map((link) => `ch-${link.dataset.channel}`));
  for (const channel of document.querySelectorAll('.chan')) {
    const hit = found.has(channel.id);
    channel.hidden = Boolean(word) && !hit && !channel.open;
    if (hit && found.size <= MOST_OPENED) channel.open = true;
  }
};

const ask = async (parts, pressed = null) => {
  clearTimeout(timer);
  const mine = ++turn;
  const fields = [['do', 'check'], ...(pressed ? [[pressed.name, pressed.value]] : [])];
  // What is redrawn with the answer cannot be typed into meanwhile, so nothing typed is lost.
  const changes = parts === EVERYTHING ? document.getElementById('changes') : null;
  if (changes) changes.inert = true;
  const page = await redrawn(form, fields);
  if (changes) changes.inert = false;
  // Only the newest answer counts: what was typed since is asked with it.
  if (!page || mine !== turn) return;
  swapParts(page, parts);
  editJson();
  showFound();
  announce(document.querySelector('#foot .sum b')?.textContent ?? '');
};

const PLAN = ['count', 'found', 'lines', 'problems', 'plan', 'foot'];
const EVERYTHING = ['way', 'said', 'from', 'changes', 'naming', 'plan', 'foot'];

// The address is the view: it names the way that is chosen.
const keepAddress = (how) => {
  const address = new URL(location.href);
  address.searchParams.set('how', how);
  history.replaceState(history.state, '', address);
};

form.addEventListener('input', (event) => {
  if (event.target.name === 'how') {
    keepAddress(event.target.value);
    ask(EVERYTHING);
    return;
  }
  clearTimeout(timer);
  timer = setTimeout(() => ask(PLAN), PAUSE);
});
document.addEventListener('input', (event) => {
  if (event.target.form === form && !form.contains(event.target)) ask(PLAN);
});

// Another view, a value that would fit, and one put back: the page stays where it is.
form.addEventListener('click', (event) => {
  const button = event.target.closest('button[name=view],button[name=reset],button[name=mend]');
  if (!button) return;
  event.preventDefault();
  ask(EVERYTHING, button);
});

// What was found leads to its field.
form.addEventListener('click', (event) => {
  const channel = document.getElementById(
    `ch-${event.target.closest('#found a')?.dataset.channel}`,
  );
  if (!channel) return;
  event.preventDefault();
  channel.open = true;
  channel.scrollIntoView({ block: 'center' });
  channel.querySelector('input:not([type=hidden]),textarea,select')?.focus({ preventScroll: true });
});
editJson();

// The button that says what is missing leads to it.
document.addEventListener('click', (event) => {
  const button = event.target.closest('#foot [aria-disabled=true]');
  if (!button) return;
  event.preventDefault();
  document.querySelector('#problems, #reason')?.scrollIntoView({ block: 'center' });
});

const tape = document.querySelector('.tape');
const here = tape?.querySelector('[aria-current]');
if (here && tape.scrollWidth > tape.clientWidth)
  tape.scrollLeft = here.offsetLeft - (tape.clientWidth - here.offsetWidth) / 2;
