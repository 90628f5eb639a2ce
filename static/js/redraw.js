// A form that the server draws anew from what is typed in it. Nothing is done by that.

// The page as it answers to the form with these fields changed; null where there is no such answer.
export const redrawn = async (form, fields) => {
  const body = new FormData(form);
  for (const [name, value] of fields) body.set(name, value);
  const answer = await fetch(form.action, {
    method: 'POST',
    body,
    headers: { 'X-Fragment': '1' },
  }).catch(() => null);
  const text = answer?.ok ? await answer.text() : '';
  return text ? new DOMParser().parseFromString(text, 'text/html') : null;
};
