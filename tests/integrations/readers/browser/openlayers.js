// A page with OpenLayers' GeoZarr source; `show` draws a store and gives the pixels at which places lie.
import Map from 'ol/Map.js';
import View from 'ol/View.js';
import TileLayer from 'ol/layer/WebGLTile.js';
import {transform} from 'ol/proj.js';
import GeoZarr from 'ol/source/GeoZarr.js';

const grey = ['band', 1];

window.show = async ({url, variable, center, metresPerPixel, places}) => {
  const source = new GeoZarr({url, bands: [variable], transition: 0, resample: 'nearest'});
  await new Promise((resolve, reject) => {
    const look = () => {
      if (source.getState() === 'error') reject(new Error(String(source.error_)));
      if (source.getState() === 'ready') resolve();
    };
    source.on('change', look);
    look();
  });
  const projection = source.getProjection();
  const perUnit = projection.getMetersPerUnit();
  const map = new Map({
    target: 'map',
    controls: [],
    pixelRatio: 1,
    layers: [
      new TileLayer({
        source,
        style: {color: ['color', grey, grey, grey, 1]},
      }),
    ],
    view: new View({
      projection,
      center: transform(center, 'EPSG:4326', projection),
      resolution: metresPerPixel / perUnit,
      constrainResolution: false,
      maxResolution: 1e9,
      minResolution: 1e-9,
    }),
  });
  source.setInterpolate?.(false);
  await new Promise((resolve) => map.once('rendercomplete', resolve));
  return {
    crs: projection.getCode(),
    pixels: places.map((place) => map.getPixelFromCoordinate(transform(place, 'EPSG:4326', projection))),
  };
};
