// One answer as its reader has it: where it stands, and the text up to there. No I/O.
//
// Frames come by any way, again and again after a break; `take` says what becomes of each:
//
//   deliver   the next thing for the reader
//   drop      the reader has it, or need not know
//   again     something is missing before it, or this way has ended and the answer has not: resume from `cursor`

export const TERMINAL = new Set(["finished", "error"]);
// Errors without a position are the edge's own. These say that it cannot serve the answer any longer, not that there is none.
const ELSEWHERE = new Set(["going_away", "slow_consumer"]);

export function parseCursor(text) {
  const [epoch, position] = text.split("-");
  // An epoch may be larger than what a number holds exactly, so it stays text.
  return { epoch, position: Number(position) };
}

export class Answer {
  #epoch;
  #position;
  #base; // the position up to which the text came from elsewhere, and cannot be cut
  #pieces = []; // { position, choice, text }
  #taken = true; // the last frame with a position was delivered
  generation; // its id in the mesh, once known
  ended = false;

  // Goes on from `cursor`, where `text` (of choice 0) has been shown already.
  constructor({ generation = "", cursor = "0-0", text = "" } = {}) {
    this.generation = generation;
    const { epoch, position } = parseCursor(cursor);
    this.#epoch = epoch;
    this.#position = this.#base = position;
    if (text) this.#pieces.push({ position, choice: 0, text });
  }

  get cursor() {
    return this.#position === 0 ? "0-0" : `${this.#epoch}-${this.#position}`;
  }

  text(choice = 0) {
    return this.#pieces.map((piece) => (piece.choice === choice ? piece.text : "")).join("");
  }

  take(frame) {
    if (this.ended) return "drop";
    if (frame.type === "resumed") return this.#resumed(frame);
    if (frame.type === "diverged") return this.#diverged(frame);
    if (frame.position === undefined) return this.#without(frame);
    const first = frame.first_position ?? frame.position;
    this.#taken = false;
    if (frame.position <= this.#position) return "drop";
    if (first !== this.#position + 1) return "again";
    this.#taken = true;
    this.#position = frame.position;
    if (frame.epoch !== undefined) this.#epoch = String(frame.epoch);
    if (frame.type === "accepted") this.generation = frame.attached_to || frame.generation || this.generation;
    if (frame.type === "token") this.#pieces.push({ position: frame.position, choice: frame.choice, text: frame.text });
    if (TERMINAL.has(frame.type)) this.ended = true;
    return "deliver";
  }

  #without(frame) {
    if (frame.type === "choice_finished") return this.#taken ? "deliver" : "drop";
    if (frame.type !== "error") return "drop";
    if (ELSEWHERE.has(frame.reason)) return "again";
    this.ended = true;
    return "deliver";
  }

  // The reader is told only where something is missing.
  #resumed(frame) {
    if (frame.generation) this.generation = frame.generation;
    const after = parseCursor(frame.after || "0-0");
    if (frame.recovered) {
      if (after.position === this.#position) this.#epoch = after.epoch;
      return frame.behind ? "deliver" : "drop";
    }
    if (frame.oldest) {
      this.#position = Math.max(this.#position, frame.oldest - 1);
      this.#epoch = after.epoch;
    }
    return "deliver";
  }

  // The text beyond `at` is no longer part of the answer.
  #diverged(frame) {
    const at = parseCursor(frame.at || "0-0");
    this.#epoch = at.epoch;
    this.#position = at.position;
    this.#pieces = this.#pieces.filter((piece) => piece.position <= at.position);
    if (at.position < this.#base) {
      // A text that came from elsewhere cannot be cut: what follows will not fit, and all is read again.
      this.#position = this.#base = 0;
      this.#pieces = [];
    }
    return "deliver";
  }
}
