// A button that records by the microphone. The recording becomes a WAV file in this window.

import { h } from "./dom.js";

const MOST_SECONDS = 60;

export function canRecord() { return Boolean(navigator.mediaDevices?.getUserMedia && window.MediaRecorder); }

export function recorder({ take, fail }) {
  let current = null, timer = 0;
  const button = h("button", { type: "button", class: "quiet record", "aria-pressed": "false", onclick: () => (current ? stop() : start()) }, "Record");

  async function start() {
    let stream;
    try {
      stream = await navigator.mediaDevices.getUserMedia({ audio: true });
    } catch {
      fail({ message: "the browser gives no access to a microphone", hint: "allow it in the browser, or choose a file" });
      return;
    }
    const parts = [];
    current = new MediaRecorder(stream);
    current.ondataavailable = ({ data }) => parts.push(data);
    current.onstop = async () => {
      for (const track of stream.getTracks()) track.stop();
      show(false);
      try {
        take(new File([await asWav(new Blob(parts))], "Microphone", { type: "audio/wav" }));
      } catch {
        fail({ message: "the recording has no sound", hint: "record for a second or more" });
      }
    };
    current.start();
    show(true);
    timer = setTimeout(stop, MOST_SECONDS * 1000 - 500);
  }

  function stop() {
    clearTimeout(timer);
    if (current?.state === "recording") current.stop();
    current = null;
  }

  function show(isOn) {
    button.textContent = isOn ? "Stop recording" : "Record";
    button.setAttribute("aria-pressed", String(isOn));
  }

  return { element: button, end() { if (current) { current.onstop = () => current?.stream?.getTracks().forEach((track) => track.stop()); stop(); } } };
}

// The sound of a blob as a WAV file: mono, 16 bits.
async function asWav(blob) {
  const context = new AudioContext();
  try {
    const sound = await context.decodeAudioData(await blob.arrayBuffer());
    const n = sound.length, bytes = new DataView(new ArrayBuffer(44 + 2 * n)), channels = [];
    for (let c = 0; c < sound.numberOfChannels; c++) channels.push(sound.getChannelData(c));
    const text = (at, word) => [...word].forEach((letter, i) => bytes.setUint8(at + i, letter.charCodeAt(0)));
    text(0, "RIFF"); bytes.setUint32(4, 36 + 2 * n, true); text(8, "WAVEfmt ");
    bytes.setUint32(16, 16, true); bytes.setUint16(20, 1, true); bytes.setUint16(22, 1, true);
    bytes.setUint32(24, sound.sampleRate, true); bytes.setUint32(28, 2 * sound.sampleRate, true);
    bytes.setUint16(32, 2, true); bytes.setUint16(34, 16, true); text(36, "data"); bytes.setUint32(40, 2 * n, true);
    for (let i = 0; i < n; i++) {
      const value = channels.reduce((sum, channel) => sum + channel[i], 0) / channels.length;
      bytes.setInt16(44 + 2 * i, Math.max(-1, Math.min(1, value)) * 32767, true);
    }
    return bytes.buffer;
  } finally {
    await context.close();
  }
}
