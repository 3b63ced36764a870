// The official Node client against a running server: node client.mjs ADDRESS PICTURE_DATA_URL
import OpenAI from "openai";

const [address, url] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${address}/v1`, apiKey: "none", maxRetries: 0 });
const messages = [
  {
    role: "user",
    content: [
      { type: "image_url", image_url: { url } },
      { type: "text", text: "What is it?" },
    ],
  },
];
const fields = { model: "tiny", messages, max_tokens: 8, temperature: 0, max_pixels: 16384 };
const whole = await client.chat.completions.create(fields);
let streamed = "";
let last;
const options = { stream: true, stream_options: { include_usage: true } };
for await (const chunk of await client.chat.completions.create({ ...fields, ...options })) {
  streamed += chunk.choices[0]?.delta?.content ?? "";
  last = chunk;
}
let refused;
try {
  await client.chat.completions.create({ ...fields, n: 9 });
} catch (error) {
  refused = { status: error.status, param: error.param };
}
const text = whole.choices[0].message.content;
console.log(JSON.stringify({ text, streamed, usage: last.usage, timings: last.timings, refused }));
