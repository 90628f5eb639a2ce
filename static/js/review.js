// The review page: what is chosen shows in meter, button and consequences; keys; and what changes
// while one reads.

import { announce, announceNews, isShortcut, shortcutsOn } from './tools.js';
import { followRun } from './live.js';
import { canUsePasskeys, signWithPasskey } from './passkey.js';
import { watchSlips } from './sightings.js';
import { fetchPage, forgetDigest, swapParts } from './swap.js';

const form = document.getElementById('review');
const region = document.querySelector('[data-writes]');
// A slip stands for one write, or in a review of many for a group of them.
const slips = () => [...document.querySelectorAll('.slip[data-write], .slip[data-group]')];
const keyOf = (slip) => slip.dataset.write ?? slip.dataset.group;
const isMany = () => Boolean(document.querySelector('[data-many]'));
const open = () => slips().filter((slip) => slip.querySelector('.trip:not([disabled])'));
const verdict = (slip) => slip.querySelector('.trip:not([disabled]) input:checked')?.value ?? '';
const number = (n) => n.toLocaleString('en-GB');
const plural = (n, one, many) => `${number(n)} ${n === 1 ? one : many}`;
const WORDS = { approve: 'Approved', edit: 'Edited', reject: 'Rejected', skip: 'Skipped' };
const CELL = { approve: 'y', edit: 'e', reject: 'n', skip: 'n' };
let signing = false;
// A gate asks this person to look at the writes for longer.
let early = false;

// ── what is chosen ──
// Of many writes the server counts: most of them are not on the page.
const talliedByServer = () => {
  const { approve, edit, reject, skip, left } = document.getElementById('meter').dataset;
  const counts = {
    approve: Number(approve),
    edit: Number(edit),
    reject: Number(reject),
    skip: Number(skip),
    left: Number(left),
  };
  const done = counts.approve + counts.edit + counts.reject + counts.skip;
  return { ...counts, all: open(), chosen: open().map(verdict), done, total: done + counts.left };
};

const tally = () => {
  if (isMany()) return talliedByServer();
  const all = open();
  const chosen = all.map(verdict);
  const done = chosen.filter(Boolean).length;
  const count = (word) => chosen.filter((v) => v === word).length;
  return {
    all,
    chosen,
    done,
    total: all.length,
    left: all.length - done,
    approve: count('approve'),
    edit: count('edit'),
    reject: count('reject'),
    skip: count('skip'),
  };
};

const paint = () => {
  const t = tally();
  if (!form || !t.total) return;
  const parts = [
    t.approve && `${number(t.approve)} approved`,
    t.edit && `${number(t.edit)} edited`,
    t.reject && `${number(t.reject)} rejected`,
    t.skip && `${number(t.skip)} skipped`,
    t.left && `${number(t.left)} left`,
  ];
  const summary = parts.filter(Boolean).join(', ');
  document.getElementById('sum').textContent = `${number(t.done)} of ${number(t.total)} decided`;
  document.getElementById('sum-more').textContent = t.done
    ? `${summary}. Kept as you choose.`
    : summary;
  document.getElementById('meter').setAttribute('aria-label', summary);
  if (!isMany())
    document.querySelectorAll('#meter i').forEach((cell, n) => {
      cell.className = CELL[t.chosen[n]] ?? '';
      cell.hidden = n >= t.all.length;
    });
  paintList(t);
  paintButtons(t);
};

const paintList = (t) => {
  // What somebody else has settled carries no choice of this person any more.
  document.querySelectorAll('.slip.lost').forEach((slip) => {
    document
      .querySelectorAll(`.wlist a[href="#${slip.id}"] [data-for]`)
      .forEach((icon) => icon.setAttribute('hidden', ''));
  });
  t.all.forEach((slip, n) => {
    const mark = document.querySelector(`.wlist a[href="#${slip.id}"] .st`);
    if (!mark) return;
    mark.className = `st ${{ y: 'y', e: 'y', n: 'n' }[CELL[t.chosen[n]]] ?? ''}`;
    mark.querySelectorAll('[data-for]').forEach((icon) => {
      icon.toggleAttribute('hidden', icon.dataset.for !== t.chosen[n]);
    });
  });
  const left = document.getElementById('left');
  if (left) left.textContent = t.left ? `${number(t.left)} left` : 'all decided';
  document.title =
    (t.left ? `(${t.left} left) ` : '') + document.title.replace(/^\([\d,]+ left\) /, '');
};

const paintButtons = (t) => {
  const sign = document.getElementById('sign');
  const some = document.getElementById('sign-some');
  sign.textContent = t.left
    ? `Decide ${number(t.left)} more to sign`
    : `Sign ${plural(t.done, 'decision', 'decisions')}`;
  sign.setAttribute('aria-disabled', String(t.left > 0 || early));
  some.hidden = !(t.left && t.done);
  some.textContent = `Sign ${number(t.done)} of ${number(t.total)} now`;
  document.getElementById('next-open').hidden = !t.left;
};

// ── moving about ──
// Keys decide the marked slip, so whatever brings focus into a slip marks it.
const current = () => document.querySelector('.slip.cur') ?? slips()[0];
const mark = (slip) => {
  if (!slip || slip.classList.contains('cur')) return;
  slips().forEach((other) => other.classList.toggle('cur', other === slip));
  document.querySelectorAll('.wlist a').forEach((link) => {
    if (link.hash === `#${slip.id}`) link.setAttribute('aria-current', 'true');
    else link.removeAttribute('aria-current');
  });
};
const go = (slip) => {
  if (!slip) return;
  mark(slip);
  slip.querySelector('h3').focus({ preventScroll: true });
  slip.scrollIntoView({ block: 'nearest' });
};
const beside = (by) =>
  slips()[Math.min(slips().length - 1, Math.max(0, slips().indexOf(current()) + by))];
const undecided = (slip) => slip.querySelector('.trip:not([disabled])') && !verdict(slip);
const nextOpen = () => {
  const all = slips();
  const from = all.indexOf(current());
  return [...all.slice(from + 1), ...all.slice(0, from + 1)].find(undecided);
};
const firstOpen = () => slips().find(undecided);
// What is undecided may stand on a line that nobody has opened yet.
const firstLine = () =>
  [...document.querySelectorAll('.apart .line')].find(
    (line) => !line.querySelector('.st').textContent.trim(),
  );
const goTo = (slip) => {
  if (slip) go(slip);
  else firstLine()?.querySelector('a').focus();
};

// A group is approved only after its samples were opened.
const isRefused = (input) => {
  if (input.getAttribute('aria-disabled') !== 'true') return false;
  announce(`${input.parentElement.querySelector('.do').textContent.trim()}.`);
  return true;
};

const choose = (letter) => {
  const slip = current();
  const input = slip?.querySelector(`.trip input[data-do=${letter}]`);
  if (!input) return;
  if (letter === 'a' && 'noKey' in slip.dataset) {
    announce('This group acts outside: approve it with its button.');
    return;
  }
  if (isRefused(input)) return;
  input.checked = true;
  input.dispatchEvent(new Event('change', { bubbles: true }));
};

const undo = () => {
  const input = current()?.querySelector('.trip input:checked');
  if (!input) return;
  input.checked = false;
  paint();
  keep(current());
  announce('Undone.');
};

const KEYS = {
  j: () => go(beside(1)),
  k: () => go(beside(-1)),
  n: () => goTo(nextOpen()),
  z: undo,
  a: () => choose('a'),
  e: () => choose('e'),
  r: () => choose('r'),
  s: () => choose('s'),
  c: () => document.getElementById('comment-text')?.focus(),
};

// Nothing has focus on a fresh page; the first slip that is left to decide is marked there.
const nothingFocused = () =>
  [document.body, document.getElementById('main')].includes(document.activeElement);
const isInWrites = (event) => Boolean(region?.contains(event.target)) || nothingFocused();

// Who types a comment or an account sends that form, and never signs by it.
const pressCtrlEnter = (event) => {
  const { target } = event;
  const own = target.form;
  if (own && own !== form) {
    // A button is pressed by the browser itself.
    if (target.matches('button')) return;
    event.preventDefault();
    own.requestSubmit(own.querySelector('button:not([type=button])'));
    return;
  }
  const sign = document.getElementById('sign');
  const signs = own === form || isInWrites(event);
  if (sign && signs && sign.getAttribute('aria-disabled') !== 'true') {
    event.preventDefault();
    form.requestSubmit(sign);
  }
};

document.addEventListener('keydown', (event) => {
  // A browser would press the form's first button for Enter in a field or on a choice.
  if (event.key === 'Enter' && event.target.matches('#review input')) event.preventDefault();
  if (!shortcutsOn()) return;
  if ((event.ctrlKey || event.metaKey) && event.key === 'Enter') {
    pressCtrlEnter(event);
    return;
  }
  if (!isShortcut(event) || !isInWrites(event)) return;
  const act = KEYS[event.key.toLowerCase()];
  if (act) {
    event.preventDefault();
    act();
  }
});

const placeOf = (slip) => {
  if (slip.dataset.group)
    return `A group of ${plural(Number(slip.dataset.count), 'write', 'writes')}.`;
  const all = slips();
  return isMany() ? 'One write.' : `Write ${all.indexOf(slip) + 1} of ${all.length}.`;
};

region?.addEventListener('change', (event) => {
  const slip = event.target.closest('.slip');
  if (slip?.querySelector('.trip')) keep(slip);
  if (!event.target.matches('.trip input') || !slip) return;
  paint();
  announce(`${WORDS[event.target.value]}, draft. ${placeOf(slip)}`);
});
region?.addEventListener('click', (event) => {
  const slip = event.target.closest('.slip');
  mark(slip);
  if (event.target.closest('[data-newer]')) showNewer(slip);
  if (event.target.matches('.trip input') && isRefused(event.target)) event.preventDefault();
});
region?.addEventListener('focusin', (event) => mark(event.target.closest('.slip')));
document.querySelector('.wlist')?.addEventListener('click', (event) => {
  const link = event.target.closest('a');
  if (link) go(document.querySelector(link.hash));
});

// A form that is drawn only when somebody asks for it.
region?.addEventListener('click', async (event) => {
  const link = event.target.closest('a[data-edit]');
  if (!link) return;
  event.preventDefault();
  const page = await fetchPage(link.href).catch(() => null);
  const id = link.closest('.slip').id;
  const fresh = page?.querySelector(`#${id} .editor`);
  if (!fresh) {
    location.assign(link.href);
    return;
  }
  const old = document.querySelector(`#${id} .editor`);
  forgetDigest(old);
  old.replaceWith(fresh);
  fresh.querySelector('input,textarea,select')?.focus();
});

// ── a review of many: writes are opened one by one, lists turned page by page ──
const countSamples = () => {
  for (const group of document.querySelectorAll('.slip.group')) {
    const input = group.querySelector('input[data-do=a]');
    const closed = [...group.querySelectorAll('[data-sample]')].filter(
      (link) => !document.getElementById(link.dataset.open),
    );
    if (!input || input.checked || input.getAttribute('aria-disabled') !== 'true') continue;
    const label = closed.length
      ? `Open ${closed.length} more sample${closed.length === 1 ? '' : 's'} first`
      : `Approve ${number(Number(group.dataset.count))}`;
    input.parentElement.querySelector('.do').textContent = label;
    if (!closed.length) input.removeAttribute('aria-disabled');
  }
};

const pageWith = (write) => fetchPage(`${location.pathname}?open=${write}`).catch(() => null);

const openWrite = async (link) => {
  const here = document.getElementById(link.dataset.open);
  if (here) {
    go(here);
    return;
  }
  const page = await pageWith(new URL(link.href).searchParams.getAll('open').at(-1));
  const fresh = page?.getElementById(link.dataset.open);
  if (!fresh) {
    location.assign(link.href);
    return;
  }
  const group = link.closest('.slip.group');
  const line = link.closest('.line');
  if (group) document.querySelector(`[data-opened="${group.dataset.group}"]`).append(fresh);
  else {
    forgetDigest(line);
    line.replaceChildren(fresh);
    line.className = 'whole';
  }
  countSamples();
  paint();
  go(fresh);
};

region?.addEventListener('click', (event) => {
  const link = event.target.closest('a[data-open]');
  if (!link) return;
  event.preventDefault();
  openWrite(link);
});

region?.addEventListener('click', async (event) => {
  const link = event.target.closest('a[data-list]');
  if (!link) return;
  event.preventDefault();
  const page = await fetchPage(link.href).catch(() => null);
  const fresh = page?.getElementById(link.dataset.list);
  const old = document.getElementById(link.dataset.list);
  if (!fresh || !old) {
    location.assign(link.href);
    return;
  }
  forgetDigest(old);
  old.replaceWith(fresh);
  fresh.tabIndex = -1;
  fresh.focus({ preventScroll: true });
  announce(
    fresh.querySelector('.pages span')?.textContent ?? 'The writes of this group are listed.',
  );
});

// Pages within a write: its long lists and letters, its raw JSON.
region?.addEventListener('click', async (event) => {
  const link = event.target.closest('a[data-part]');
  if (!link) return;
  event.preventDefault();
  const page = await fetchPage(link.href).catch(() => null);
  const fresh = page?.getElementById(link.dataset.part);
  const old = document.getElementById(link.dataset.part);
  if (!fresh || !old) {
    location.assign(link.href);
    return;
  }
  forgetDigest(old);
  old.replaceWith(fresh);
  fresh.tabIndex = -1;
  fresh.focus({ preventScroll: true });
  announce(fresh.querySelector('.pages span')?.textContent ?? '');
});

// ── what is chosen is kept on the server: no reload, log-out or lost connection loses it ──
const PAUSE = 600;
const RETRY = 5000;
const PATIENCE = 30_000;
const dirty = new Set();
let saving = false;
let timer = 0;

const later = (ms) => {
  clearTimeout(timer);
  timer = setTimeout(flush, ms);
};
const keep = (slip, ms = 0) => {
  if (form && slip) {
    dirty.add(keyOf(slip));
    later(ms);
  }
};

// Signing in again elsewhere changes the token; the cookie has the one that counts now.
const renewToken = (target = form) => {
  const token = document.cookie.match(/(?:^|; )csrftoken=([^;]+)/)?.[1];
  if (token) target.elements.csrfmiddlewaretoken.value = token;
};
document.addEventListener('submit', (event) => {
  if (event.target.elements.csrfmiddlewaretoken) renewToken(event.target);
});

const isOf = (name, write) =>
  [`v-${write}`, `h-${write}`, `r-${write}`, `d-${write}`, `e-${write}`].includes(name) ||
  [`g-${write}`, `gs-${write}`, `gr-${write}`].includes(name) ||
  name.startsWith(`e-${write}.`);

const draftOf = (writes) => {
  renewToken();
  const all = [...new FormData(form)];
  const body = new FormData();
  for (const [name, value] of all)
    if (['csrfmiddlewaretoken', 'number'].includes(name) || name.startsWith('o-'))
      body.append(name, value);
  for (const write of writes) {
    body.append(document.querySelector(`.slip[data-group="${write}"]`) ? 'group' : 'write', write);
    for (const [name, value] of all)
      if (typeof value === 'string' && isOf(name, write)) body.append(name, value);
  }
  return body;
};

const sayUnsaved = (why) => {
  const note = document.getElementById('unsaved');
  if (!note) return;
  note.hidden = !why;
  note.querySelectorAll('[data-why]').forEach((part) => {
    part.hidden = part.dataset.why !== why;
  });
};

const WHY = { 401: 'out', 409: 'newer' };

const takeAnswer = async (answer) => {
  const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
  const next = page.getElementById('next');
  for (const slip of slips()) {
    if (next?.dataset.moved?.split(' ').includes(keyOf(slip)))
      slip.querySelector('.changed')?.removeAttribute('hidden');
  }
  swapParts(page, isMany() ? ['next', 'meter'] : ['next']);
  if (isMany()) paint();
};

const flush = async () => {
  clearTimeout(timer);
  if (!form || saving || signing || !dirty.size) return;
  const batch = [...dirty];
  dirty.clear();
  saving = true;
  if (isMany()) document.getElementById('sum-more').textContent = 'Saving your choices…';
  document.getElementById('next')?.setAttribute('aria-busy', 'true');
  const how = {
    method: 'POST',
    body: draftOf(batch),
    headers: { 'X-Fragment': '1' },
    keepalive: document.hidden,
    signal: AbortSignal.timeout(PATIENCE),
  };
  const answer = await fetch(document.getElementById('keep').formAction, how).catch(() => null);
  // Each save has a number of its own, the next one after a lost answer too: the lost one may have
  // been kept.
  if (!answer || answer.ok || answer.status >= 500)
    form.elements.number.value = String(Number(form.elements.number.value) + 1);
  if (answer?.ok) await takeAnswer(answer).catch(() => null);
  saving = false;
  if (answer?.ok) {
    sayUnsaved('');
    if (dirty.size) later(0);
    return;
  }
  batch.forEach((write) => dirty.add(write));
  const why =
    answer?.status === 409 && !answer.headers.has('X-Newer')
      ? 'off'
      : (WHY[answer?.status] ?? 'off');
  sayUnsaved(why);
  if (why !== 'newer') later(RETRY);
};

region?.addEventListener('input', (event) => {
  const slip = event.target.closest('.slip');
  if (slip?.querySelector('.trip') && !event.target.matches('.trip input')) keep(slip, PAUSE);
});
document.addEventListener('visibilitychange', flush);

const tellSeen = form ? watchSlips(form, region, renewToken) : async () => {};

// ── signing ──
const sign = async () => {
  signing = true;
  document.getElementById('sign').textContent = 'Signing…';
  document.getElementById('unsigned').hidden = true;
  document.getElementById('message')?.setAttribute('hidden', '');
  renewToken();
  // Of many writes what is drafted is signed, so the last choice is drafted first.
  if (isMany() && dirty.size && !saving) {
    signing = false;
    await flush();
    signing = true;
  }
  // A save that arrives after the signing would keep what is signed.
  for (let n = 0; saving && n < (isMany() ? 600 : 40); n += 1)
    await new Promise((go) => {
      setTimeout(go, 50);
    });
  await tellSeen();
  if (!(await askPasskey())) return;
  const how = { method: 'POST', body: new FormData(form), signal: AbortSignal.timeout(PATIENCE) };
  const answer = await fetch(form.action, how).catch(() => null);
  if (!answer || answer.status >= 500) {
    sayUnsigned();
    return;
  }
  if (answer.headers.has('X-Unconfirmed')) {
    await sayUnconfirmed(answer);
    return;
  }
  if (answer.headers.has('X-Unconsidered')) {
    await sayEarly(answer);
    return;
  }
  // What stands in the way is a page of its own. The key is the same, so that nothing counts twice.
  if (answer.redirected) location.assign(answer.url);
  else form.submit();
};

// A wrong password is asked for again on this page: posted anew, it would count twice.
const sayUnconfirmed = async (answer) => {
  const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
  const note = document.getElementById('unconfirmed');
  const field = document.getElementById('confirm-password');
  note.textContent = page.querySelector('#message strong')?.textContent ?? 'Nothing was signed.';
  if (field) field.value = '';
  showUnconfirmed(field ?? note);
};
// The button works again when the time is up.
const sayEarly = async (answer) => {
  const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
  const note = document.getElementById('early');
  const seconds = Number(answer.headers.get('X-Unconsidered'));
  note.textContent = page.querySelector('#message strong')?.textContent ?? 'Nothing was signed.';
  note.hidden = false;
  note.focus();
  signing = false;
  early = seconds > 0;
  later(0);
  paint();
  if (early) setTimeout(endEarly, seconds * 1000);
};
const endEarly = () => {
  early = false;
  document.getElementById('early').hidden = true;
  paint();
  announce('You can sign now.');
};
const showUnconfirmed = (target) => {
  signing = false;
  later(0);
  document.getElementById('unconfirmed').hidden = false;
  target.focus();
  paint();
};

// Where a gate asks for a passkey, the device signs what the form decides, just before it is sent.
const askPasskey = async () => {
  const field = document.getElementById('assertion');
  if (!field) return true;
  field.value = '';
  // Who types a password signs what asks for no more; the server says if something does.
  if (document.getElementById('confirm-password')?.value) return true;
  const note = document.getElementById('unconfirmed');
  note.hidden = true;
  note.textContent = 'Nothing was signed: this browser uses no passkeys here.';
  if (canUsePasskeys())
    try {
      field.value = await signWithPasskey(form, field.dataset.challenge);
      return true;
    } catch (error) {
      note.textContent = error.message;
    }
  showUnconfirmed(note);
  return false;
};

const sayUnsigned = () => {
  const note = document.getElementById('unsigned');
  signing = false;
  later(0);
  note.hidden = false;
  note.tabIndex = -1;
  note.focus();
  announce('Not signed. The server did not answer.');
  paint();
};

form?.addEventListener('submit', (event) => {
  const button = event.submitter;
  if (button?.id === 'keep') return;
  event.preventDefault();
  if (signing) return;
  if (early) {
    announce(document.getElementById('early').textContent);
    return;
  }
  if (button?.getAttribute('aria-disabled') === 'true') {
    goTo(firstOpen());
    announce(document.getElementById('sign').textContent);
    return;
  }
  sign();
});
addEventListener('pageshow', () => {
  signing = false;
  paint();
});
document.getElementById('next-open')?.addEventListener('click', () => goTo(nextOpen()));

// ── what changes while one reads ──
const newer = new Map();
const touched = (slip) =>
  verdict(slip) || slip.contains(document.activeElement) || slip.matches(':hover');

// Somebody else has settled it: who and when stands in its place, and what was chosen here is not
// sent.
const lose = (slip, line) => {
  const drafted = verdict(slip);
  const trip = slip.querySelector('.trip');
  if (trip) trip.disabled = true;
  slip.querySelectorAll('input[type=hidden][name=write]').forEach((input) => {
    input.disabled = true;
  });
  const said = document.createElement('strong');
  said.textContent = drafted ? `${line} Your draft was not sent.` : line;
  slip.querySelector('.changed [data-what]').replaceChildren(said);
  slip.querySelector('[data-newer]').textContent = 'Show what was decided';
  slip.classList.add('lost');
  return said.textContent;
};

const showNewer = (slip) => {
  const fresh = newer.get(slip.id);
  if (!fresh) {
    location.reload();
    return;
  }
  newer.delete(slip.id);
  slip.replaceWith(fresh);
  paint();
  go(fresh);
};

// Between a press and its answer nothing moves: whoever has to sign again finds the same page, and
// its key.
const unanswered = () => signing || document.getElementById('unsigned')?.hidden === false;

const hashOf = (slip) => slip.querySelector('[name^="h-"], [name^="gs-"]')?.value;

// Nothing can be decided here any more: no keys, no counts, and what was chosen is said not to be
// sent.
const end = (page) => {
  const drafted =
    open().filter(verdict).length + document.querySelectorAll('.slip.lost .trip :checked').length;
  for (const fresh of page.querySelectorAll('.slip:has([data-test=withdrawn])')) {
    document.querySelector(`.slip[data-write="${fresh.dataset.write}"]`)?.replaceWith(fresh);
  }
  document
    .querySelectorAll('.trip,.why,.editor,.keys,.samples,#foot')
    .forEach((part) => part.setAttribute('hidden', ''));
  document.getElementById('left')?.replaceChildren();
  document.title = document.title.replace(/^\([\d,]+ left\) /, '');
  const line = drafted && document.querySelector('#gone [data-not-sent]');
  if (line)
    line.textContent =
      drafted === 1 ? 'Your draft was not sent.' : `Your ${drafted} drafts were not sent.`;
};

// Who is signed out would be led away from choices that are nowhere but on this page.
const signedOut = () =>
  document.querySelector('#unsaved:not([hidden]) [data-why=out]:not([hidden])') !== null;

const askedIds = (page) => [...page.querySelectorAll('[id^="asked-"]')].map((panel) => panel.id);

const isTyped = (part) =>
  [...part.querySelectorAll('input:not([type=hidden]), textarea')].some(
    (field) => field.value !== field.defaultValue,
  );

// The parts beside the slips. Nobody loses what is typed in a hand-over.
const partsBeside = () => {
  const ids = ['signatures', 'gone', 'review-head', 'meter', 'comments-list'];
  const claims = document.getElementById('claims');
  if (claims && !isTyped(claims)) ids.push('claims');
  // The title and the facts are part of what is signed.
  return [...ids, ...askedIds(document)];
};

const countComments = (page) => Number(page.getElementById('comments-list').dataset.count);

const merge = (page) => {
  // A request that was re-opened asks under another policy: nothing of it stands here.
  const asked = askedIds(page);
  if (askedIds(document).some((id) => !asked.includes(id))) {
    location.reload();
    return;
  }
  let changed = 0;
  let lost = '';
  for (const fresh of page.querySelectorAll('.slip[data-write], .slip[data-group]')) {
    const old = slips().find((slip) => keyOf(slip) === keyOf(fresh));
    if (!old) continue;
    if (old.dataset.version === fresh.dataset.version) {
      // Only what this person has chosen is new in it, and stands here already. A slip without a
      // digest shows another page of its lists than the fresh one.
      if (old.dataset.digest) old.dataset.digest = fresh.dataset.digest;
      continue;
    }
    // Somebody else's signature filled in a slot: what is chosen here is for the same revision, and
    // counts.
    if (touched(old) && hashOf(old) && hashOf(old) === hashOf(fresh)) {
      old.dataset.version = fresh.dataset.version;
      continue;
    }
    changed += 1;
    fresh.id = old.id;
    if (touched(old)) {
      newer.set(fresh.id, fresh);
      if (fresh.dataset.settled && old.querySelector('.trip:not([disabled])'))
        lost = lose(old, fresh.dataset.settled);
      old.querySelector('.changed')?.removeAttribute('hidden');
    } else {
      old.replaceWith(fresh);
    }
  }
  if (isMany()) {
    const there = new Set([...page.querySelectorAll('.slip.group')].map(keyOf));
    document.querySelectorAll('.slip.group').forEach((group) => {
      if (!there.has(keyOf(group))) group.querySelector('.changed').hidden = false;
    });
  }
  const comments = countComments(document);
  swapParts(page, partsBeside());
  if (countComments(document) > comments) announceNews('Somebody commented.');
  if (changed)
    announceNews(changed > 1 ? `${changed} writes changed.` : lost || 'A write changed.');
  if (!page.getElementById('review') && form) {
    end(page);
    return;
  }
  paint();
};

const main = document.querySelector('[data-run]');
if (main) {
  const lookAgain = async () => {
    if (unanswered() || signedOut()) return false;
    const opened = isMany()
      ? slips()
          .filter((slip) => slip.dataset.write)
          .map((slip) => `&open=${slip.dataset.write}`)
      : [];
    const earlier = new URLSearchParams(location.search).get('comments');
    if (earlier) opened.push(`&comments=${encodeURIComponent(earlier)}`);
    const page = await fetchPage(main.dataset.page + opened.join('')).catch(() => null);
    // The press of a button may have come while the page was on its way.
    if (!page || unanswered()) return false;
    merge(page);
    return true;
  };
  const { run, seq, comments } = main.dataset;
  followRun(run, Number(seq), lookAgain, Number(comments));
}
// What answers a signature that was not taken is the review again, at its own address: reloading it
// posts nothing.
if (location.pathname.endsWith('/comment/'))
  history.replaceState(null, '', location.pathname.replace(/comment\/$/, ''));
if (location.pathname.endsWith('/sign/')) {
  history.replaceState(null, '', location.pathname.replace(/sign\/$/, ''));
  // Choices made just before the signature were sent with it, and may not have been kept.
  open()
    .filter(verdict)
    .forEach((slip) => keep(slip));
}
mark(slips().find((slip) => location.hash === `#${slip.id}`));
paint();
// From the inbox, to hand it over.
if (location.hash.startsWith('#to-')) document.getElementById(location.hash.slice(1))?.focus();
