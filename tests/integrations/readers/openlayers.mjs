// What OpenLayers makes of the stores at the URLs given after the folder of its modules, one JSON line each.
// A store is "URL#band": the band's first tile is decoded as well.
import {pathToFileURL} from 'node:url';
import {join} from 'node:path';

const [modules, ...stores] = process.argv.slice(2);
const load = (path) => import(pathToFileURL(join(modules, 'ol', path)));
globalThis.window ??= globalThis;
const {default: GeoZarr} = await load('source/GeoZarr.js');

for (const store of stores) {
  const [url, band] = store.split('#');
  const source = new GeoZarr({url, bands: [band]});
  const state = await new Promise((resolve) => {
    const look = () => ['ready', 'error'].includes(source.getState()) && resolve(source.getState());
    source.on('change', look);
    look();
  });
  if (state === 'error') {
    console.log(JSON.stringify({error: String(source.error_)}));
    continue;
  }
  const grid = source.tileGrid;
  console.log(
    JSON.stringify({
      crs: source.getProjection()?.getCode(),
      extent: grid.getExtent(),
      resolutions: grid.getResolutions(),
      matrices: grid.getMatrixIds(),
      nodata: source.fillValue_ ?? null,
    }),
  );
}
process.exit(0);
