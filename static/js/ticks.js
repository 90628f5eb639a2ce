// Ages, times left and durations go on: one timer for the page. The server says the same in
// `templatetags/console.py`.

const two = (n) => String(n).padStart(2, '0');

const spell = (seconds) => {
  const minutes = Math.floor(seconds / 60);
  if (minutes < 1) return `${seconds} s`;
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 1440) return `${Math.floor(minutes / 60)} h ${two(minutes % 60)} min`;
  return minutes >= 2880 ? `${Math.floor(minutes / 1440)} days` : '1 day';
};

const SHOWN = {
  since: (seconds) => spell(seconds),
  left: (seconds) => spell(Math.max(0, -seconds)),
  lasted: (seconds) =>
    `${Math.floor(seconds / 3600)}:${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)}`,
};

const tick = () => {
  if (document.hidden) return;
  for (const element of document.querySelectorAll('time[data-tick]')) {
    const seconds = Math.floor((Date.now() - Date.parse(element.dateTime)) / 1000);
    const text = SHOWN[element.dataset.tick](
      element.dataset.tick === 'left' ? seconds : Math.max(0, seconds),
    );
    if (element.textContent !== text) element.textContent = text;
  }
};

export const startTicking = () => {
  setInterval(tick, 1000);
  document.addEventListener('visibilitychange', tick);
};
