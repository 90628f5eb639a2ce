// Going on from a checkpoint: the plan follows what is typed, after a pause of 300 ms. The server checks; nothing is done.

import { announce } from './tools.js';
import { editInPlace } from './json_editor.js';
import { swapParts } from './swap.js';

const PAUSE = 300;
const form = document.getElementById('go-on');
let timer = 0;
let turn = 0;

// The editor is large: it is loaded once somebody opens the JSON.
const editJson = () => {
  if (!form.querySelector('input[name=mode][value=json]:checked')) return;
  editInPlace(document.getElementById('json'), document.getElementById('typed').dataset.editor);
};

const ask = async (parts, pressed = null) => {
  clearTimeout(timer);
  const mine = ++turn;
  const body = new FormData(form);
  body.set('do', 'check');
  if (pressed) body.set(pressed.name, pressed.value);
  const answer = await fetch(form.action, { method: 'POST', body, headers: { 'X-Fragment': '1' } }).catch(() => null);
  // Only the newest answer counts: what was typed since is asked with it.
  if (!answer?.ok || mine !== turn) return;
  const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
  swapParts(page, parts);
  editJson();
  announce(document.querySelector('#foot .sum b')?.textContent ?? '');
};

const PLAN = ['count', 'found', 'lines', 'problems', 'plan', 'foot'];
const EVERYTHING = ['way', 'said', 'changes', 'words', 'plan', 'foot'];

form.addEventListener('input', (event) => {
  if (event.target.name === 'how') { ask(EVERYTHING); return; }
  if (event.target.name === 'mode') editJson();
  clearTimeout(timer);
  timer = setTimeout(() => ask(PLAN), PAUSE);
});
document.addEventListener('input', (event) => {
  if (event.target.form === form && !form.contains(event.target)) ask(PLAN);
});

// A value that would fit, and one put back: the page stays where it is.
form.addEventListener('click', (event) => {
  const button = event.target.closest('button[name=reset],button[name=mend]');
  if (!button) return;
  event.preventDefault();
  ask(EVERYTHING, button);
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
if (here && tape.scrollWidth > tape.clientWidth) tape.scrollLeft = here.offsetLeft - (tape.clientWidth - here.offsetWidth) / 2;
