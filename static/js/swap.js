// Fetch the page again and replace the parts that have an id in `ids`, keeping focus, scroll and
// open details.

const scrollers = (part) => [...part.querySelectorAll('[data-keep-scroll]')];

const remember = (part) => ({
  focus: part.contains(document.activeElement) ? document.activeElement.id : '',
  open: [...part.querySelectorAll('details[id][open]')].map((d) => d.id),
  scroll: scrollers(part).map((s) => [s.dataset.keepScroll, s.scrollLeft, s.scrollTop]),
});

const restore = (part, was) => {
  for (const id of was.open) {
    const d = document.getElementById(id);
    if (d) d.open = true;
  }
  for (const [name, left, top] of was.scroll) {
    const s = part.querySelector(`[data-keep-scroll="${name}"]`);
    if (s) {
      s.scrollLeft = left;
      s.scrollTop = top;
    }
  }
  if (was.focus) document.getElementById(was.focus)?.focus({ preventScroll: true });
};

const PATIENCE = 30_000;

export const fetchText = async (url, headers = {}) => {
  const answer = await fetch(url, {
    headers: { 'X-Fragment': '1', ...headers },
    signal: AbortSignal.timeout(PATIENCE),
  });
  if (answer.status === 404 || answer.redirected) {
    location.reload();
    return null;
  }
  return answer.ok ? answer.text() : null;
};

// The parts on the screen as the server drew them, by their ids. A script that makes something else
// of a part takes its digest away.
const drawnParts = () =>
  new Map([...document.querySelectorAll('[id][data-digest]')].map((part) => [part.id, part]));

// To be called where a script changes something within a part: it is not what the server drew.
export const forgetDigest = (element) =>
  element.closest('[data-digest]')?.removeAttribute('data-digest');

// An option that was not sent anew has its place in a list that may have become longer.
const countOptions = (list) => {
  const { total, newest, newestFirst } = list.dataset;
  list.querySelectorAll('[aria-setsize]').forEach((option, n) => {
    option.ariaSetSize = total;
    if (newestFirst !== undefined) option.ariaPosInSet = n + 1;
    if (newest) option.ariaLabel = option.ariaLabel.replace(/ of [\d,]*\d/, ` of ${newest}`);
  });
};

// The server sends only the parts that have changed; in the place of the others those on the screen
// are put.
export const fetchPage = async (url) => {
  const drawn = drawnParts();
  const known = [...drawn].map(([id, part]) => `${id}=${part.dataset.digest}`);
  const text = await fetchText(url, { 'X-Parts': known.join(',') });
  if (text === null) return null;
  const page = new DOMParser().parseFromString(text, 'text/html');
  for (const stub of page.querySelectorAll('[data-same]'))
    stub.replaceWith(drawn.get(stub.id).cloneNode(true));
  page.querySelectorAll('[data-total]').forEach(countOptions);
  return page;
};

export const swapParts = (page, ids) => {
  for (const id of ids) {
    const old = document.getElementById(id);
    const fresh = page.getElementById(id);
    if (!old || !fresh || old.isEqualNode(fresh)) continue;
    const was = remember(old);
    old.replaceWith(fresh);
    restore(fresh, was);
  }
};

// Only the newest answer counts: two steps in a row must not end on the first one.
let turn = 0;
export const refresh = async (url, ids) => {
  const mine = ++turn;
  const page = await fetchPage(url).catch(() => null);
  if (!page || mine !== turn) return null;
  swapParts(page, ids);
  return page;
};
