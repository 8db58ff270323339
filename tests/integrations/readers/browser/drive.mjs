// Opens pages in a browser, one for each job of the list on stdin, and prints one JSON line each: what `show` gave, and
// the colours at and around the places asked for. Arguments: the browser, and the folder of modules with puppeteer.
import {readFileSync} from 'node:fs';
import {createRequire} from 'node:module';

const [executablePath, modules] = process.argv.slice(2);
const puppeteer = createRequire(`${modules}/`)('puppeteer-core');
const jobs = JSON.parse(readFileSync(0, 'utf8'));
const SIZE = 512;
const AROUND = 4;

const browser = await puppeteer.launch({
  executablePath,
  headless: true,
  args: [
    '--no-sandbox',
    '--disable-background-networking',
    '--use-gl=angle',
    '--use-angle=swiftshader',
    '--enable-unsafe-swiftshader',
    '--ignore-gpu-blocklist',
  ],
});

const colours = (page, picture, pixels) =>
  page.evaluate(
    async (url, places, around) => {
      const bitmap = await createImageBitmap(await (await fetch(url)).blob());
      const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
      const context = canvas.getContext('2d');
      context.drawImage(bitmap, 0, 0);
      return places.map(([x, y]) => {
        const side = 2 * around + 1;
        const {data} = context.getImageData(Math.round(x) - around, Math.round(y) - around, side, side);
        return Array.from({length: side * side}, (_, k) => [data[4 * k], data[4 * k + 1], data[4 * k + 2]]);
      });
    },
    `data:image/png;base64,${picture}`,
    pixels,
    AROUND,
  );

for (const {page: address, name, ...job} of jobs) {
  const page = await browser.newPage();
  const said = [];
  page.on('console', (message) => said.push(message.text()));
  page.on('pageerror', (error) => said.push(String(error)));
  try {
    await page.setViewport({width: SIZE, height: SIZE});
    await page.goto(address);
    const limit = new Promise((_, reject) => setTimeout(() => reject(new Error('no picture after 60 s')), 60000));
    const found = await Promise.race([page.evaluate((asked) => window.show(asked), job), limit]);
    const picture = await page.screenshot({encoding: 'base64'});
    console.log(JSON.stringify({name, ...found, colours: await colours(page, picture, found.pixels)}));
  } catch (error) {
    console.log(JSON.stringify({name, error: String(error), said}));
  }
  await page.close();
}
await browser.close();
