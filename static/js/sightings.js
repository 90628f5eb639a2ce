// Which writes of a review are on the screen: told to the server, so that a gate can ask for it.

const SHARE = 0.5;
const LOOK = 500;
const PAUSE = 1000;
const RETRY = 5000;
const PATIENCE = 30_000;
const STEPS = [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1];

// Of a slip that is higher than the screen, half of the screen is enough.
const isOnScreen = (entry) =>
  entry.isIntersecting &&
  (entry.intersectionRatio >= SHARE || entry.intersectionRect.height >= innerHeight * SHARE);

// The raw JSON has all of a write; a sample of a group counts as opened when it is.
const isOpened = (slip) => {
  const folds = [...slip.querySelectorAll('details.fold')];
  const isUnfolded = (fold) => fold.open || 'unfolded' in fold.dataset;
  const others = folds.filter((fold) => !fold.id.endsWith('-j'));
  return (
    slip.closest('[data-opened]') !== null ||
    others.every(isUnfolded) ||
    folds.filter((fold) => fold.id.endsWith('-j')).some(isUnfolded)
  );
};

// Begins to watch the slips of a form. What it returns sends at once what is still to be told.
export const watchSlips = (form, region, renewToken) => {
  const told = new Map();
  const waiting = new Map();
  const looks = new Map();
  let timer = 0;
  let sending = null;

  const later = (ms) => {
    clearTimeout(timer);
    timer = setTimeout(flush, ms);
  };

  const note = (slip) => {
    const seen = slip.dataset.seen;
    const opened = isOpened(slip);
    if (!seen || told.get(seen) === true || told.get(seen) === opened) return;
    waiting.set(seen, opened);
    later(PAUSE);
  };

  const bodyOf = (batch) => {
    renewToken();
    const body = new FormData();
    body.append('csrfmiddlewaretoken', form.elements.csrfmiddlewaretoken.value);
    for (const [seen, opened] of batch) body.append(opened ? 'opened' : 'seen', seen);
    return body;
  };

  const send = async () => {
    const batch = [...waiting];
    waiting.clear();
    const how = {
      method: 'POST',
      body: bodyOf(batch),
      headers: { 'X-Fragment': '1' },
      keepalive: document.hidden,
      signal: AbortSignal.timeout(PATIENCE),
    };
    const answer = await fetch(form.dataset.seen, how).catch(() => null);
    for (const [seen, opened] of batch) {
      if (answer?.ok) told.set(seen, opened);
      else if (!waiting.has(seen)) waiting.set(seen, opened);
    }
    if (!answer?.ok) later(RETRY);
  };

  const flush = async () => {
    clearTimeout(timer);
    await sending;
    if (!waiting.size) return;
    sending = send();
    await sending;
    sending = null;
  };

  const observer = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        const slip = entry.target;
        if (!isOnScreen(entry)) {
          clearTimeout(looks.get(slip));
          looks.delete(slip);
        } else if (!looks.has(slip))
          looks.set(
            slip,
            setTimeout(() => note(slip), LOOK),
          );
      }
    },
    { threshold: STEPS },
  );

  const watched = new WeakSet();
  const watch = () => {
    for (const slip of region.querySelectorAll('.slip[data-seen]')) {
      if (!watched.has(slip)) {
        watched.add(slip);
        observer.observe(slip);
      }
    }
  };

  // Nobody sees a page in a tab behind others.
  document.addEventListener('visibilitychange', () => {
    for (const slip of region.querySelectorAll('.slip[data-seen]')) {
      observer.unobserve(slip);
      clearTimeout(looks.get(slip));
      looks.delete(slip);
      if (!document.hidden) observer.observe(slip);
    }
    flush();
  });

  // A toggle does not bubble.
  region.addEventListener(
    'toggle',
    (event) => {
      if (!event.target.matches('details.fold[open]')) return;
      event.target.dataset.unfolded = '';
      const slip = event.target.closest('.slip[data-seen]');
      if (slip) note(slip);
    },
    true,
  );

  new MutationObserver(watch).observe(region, { childList: true, subtree: true });
  if (!document.hidden) watch();
  return flush;
};
