// What comes of a signature is shown while the page is open.
import { followRun } from './live.js';
import { refresh } from './swap.js';

const { run, seq } = document.getElementById('what-now').dataset;
if (run)
  followRun(run, Number(seq), async () => (await refresh(location.href, ['what-now'])) !== null);
