// Passkeys: asks the authenticator for a signature over a review, and for a new key.

import { announce } from './tools.js';

const toBytes = (text) =>
  Uint8Array.from(atob(text.replace(/-/g, '+').replace(/_/g, '/')), (char) => char.charCodeAt(0));
const toText = (buffer) =>
  btoa(String.fromCharCode(...new Uint8Array(buffer)))
    .replace(/\+/g, '-')
    .replace(/\//g, '_')
    .replace(/=+$/, '');
const withId = (credential) => ({ ...credential, id: toBytes(credential.id) });

// What the server reads: the JSON of the standard, which older browsers do not make themselves.
const toJson = (credential) => {
  const response = { clientDataJSON: toText(credential.response.clientDataJSON) };
  for (const name of ['attestationObject', 'authenticatorData', 'signature', 'userHandle'])
    if (credential.response[name]) response[name] = toText(credential.response[name]);
  return {
    id: credential.id,
    rawId: toText(credential.rawId),
    type: credential.type,
    response,
    clientExtensionResults: {},
  };
};

export const canUsePasskeys = () => Boolean(window.PublicKeyCredential && navigator.credentials);

// How long the server may take, and how long a person at their device. A browser may wait for ever
// where a dialog was lost behind other windows.
const PATIENCE = 30_000;
const AT_THE_DEVICE = 120_000;

const post = (address, form) =>
  fetch(address, {
    method: 'POST',
    body: new FormData(form),
    headers: { 'X-Fragment': '1' },
    signal: AbortSignal.timeout(PATIENCE),
  }).catch(() => null);

// The answer of the authenticator over what the form decides, as the server takes it; empty where
// nothing that is decided needs one. What is thrown is said to the person.
export const signWithPasskey = async (form, address) => {
  const asked = await post(address, form);
  if (!asked) throw new Error('Nothing was signed: the server did not answer. Sign again.');
  const { challenge, options, message } = await asked.json().catch(() => ({}));
  if (!asked.ok) throw new Error(message || 'Nothing was signed: the server did not answer well.');
  if (!options) return '';
  const credential = await navigator.credentials
    .get({
      publicKey: {
        ...options,
        challenge: toBytes(options.challenge),
        allowCredentials: options.allowCredentials.map(withId),
      },
      signal: AbortSignal.timeout(AT_THE_DEVICE),
    })
    // What a browser says of its devices is meant for programs.
    .catch(() => null);
  if (!credential)
    throw new Error(
      'Nothing was signed: your passkey was not used. What you chose is kept; sign again.',
    );
  return JSON.stringify({ challenge, credential: toJson(credential) });
};

const makeKey = (options) =>
  navigator.credentials.create({
    publicKey: {
      ...options,
      challenge: toBytes(options.challenge),
      user: withId(options.user),
      excludeCredentials: (options.excludeCredentials ?? []).map(withId),
    },
    signal: AbortSignal.timeout(AT_THE_DEVICE),
  });

const form = document.getElementById('new-passkey');
const note = document.getElementById('passkey-refused');
const refuse = (text) => {
  note.textContent = text || 'No passkey was made.';
  note.hidden = false;
  form.elements.password.value = '';
  announce(note.textContent);
};

form?.addEventListener('submit', async (event) => {
  event.preventDefault();
  if (!canUsePasskeys()) {
    refuse('This browser makes no passkeys here.');
    return;
  }
  note.hidden = true;
  const asked = await post(form.dataset.options, form);
  const options = await asked?.json().catch(() => null);
  if (!asked?.ok || !options) {
    refuse(options?.message);
    return;
  }
  const credential = await makeKey(options).catch(() => null);
  if (!credential) {
    refuse('Your device made no passkey.');
    return;
  }
  const made = document.getElementById('made-passkey');
  made.elements.credential.value = JSON.stringify(toJson(credential));
  made.submit();
});
