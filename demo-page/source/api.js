// In place of the dashboard's api.js: the same functions, which answer from a recording instead of a service.

export class ApiError extends Error {
  name = "ApiError";
  passing = false;
}

let answers = {}; // of each stream, by path

// Choose what is known from now on: what a recording has released by the end of a day.
export function moveTo(recording, day) {
  answers = { departures: recording.departuresUntil(day), delays: recording.delaysUntil(day) };
}

export const streamPath = (stream) => `/v1/streams/${stream}`;

export async function get(path, query = {}) {
  const [stream, asked = ""] = path.replace("/v1/streams/", "").split("/");
  const answer = answers[stream]?.[asked];
  if (!answer) throw new ApiError("This page has no recorded answer to that; the service has.");
  return answer(query);
}
