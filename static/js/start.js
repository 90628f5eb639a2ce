// Starting a run: form and JSON are two views of one input. The server draws the one that is
// chosen; nothing is done.

import { redrawn } from './redraw.js';
import { swapParts } from './swap.js';
import { announce } from './tools.js';

const form = document.getElementById('start');
const PARTS = ['said', 'views', 'typed'];

form.addEventListener('click', async (event) => {
  const button = event.target.closest('button[name=view]');
  if (!button) return;
  event.preventDefault();
  // What is redrawn with the answer cannot be typed into meanwhile, so nothing typed is lost.
  const typed = document.getElementById('typed');
  typed.inert = true;
  const page = await redrawn(form, [[button.name, button.value]]);
  typed.inert = false;
  if (page) swapParts(page, PARTS);
  announce(
    page
      ? (document.querySelector('#typed [data-test=stays]')?.textContent ?? '')
      : 'No answer. The view was not changed.',
  );
});
